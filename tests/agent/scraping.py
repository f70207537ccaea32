from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Family:
    """One metric of a scrape: its type, and its series' values by sample name and labels."""

    kind: str
    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    @property
    def labels(self) -> frozenset[str]:
        """The names of all labels that occur, but for a histogram's own."""
        return frozenset(label for _, labels in self.samples for label, _ in labels) - {"le"}


@dataclass(frozen=True)
class Scrape:
    """All metrics by the name that a query uses: counters end in _total."""

    families: Mapping[str, Family]

    def value(self, sample: str, **labels: str) -> float | None:
        found = [
            value
            for family in self.families.values()
            for key, value in family.samples.items()
            if key == (sample, frozenset(labels.items()))
        ]
        assert len(found) < 2, f"{sample} {labels} stands twice"
        return found[0] if found else None


def read(exposition: bytes) -> Scrape:
    """Parses the text of a scrape; a series that occurs twice is an error."""
    families = {}
    for family in text_string_to_metric_families(exposition.decode()):
        samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in families
        families[name] = Family(family.type, samples)
    return Scrape(families)
