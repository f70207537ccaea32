"""Whether a namespace's labels are what a selector asks for.

The Kubernetes documentation, "Labels and selectors": an absent label passes NotIn.
"""

from collections.abc import Iterable, Mapping

from nodeagent.model.routes import LabelRule


def selects(selector: Iterable[LabelRule], labels: Mapping[str, str]) -> bool:
    """Whether all rules hold; a selector without rules selects everything."""
    return all(_holds(rule, labels) for rule in selector)


def _holds(rule: LabelRule, labels: Mapping[str, str]) -> bool:
    match rule.operator:
        case "In":
            return labels.get(rule.key) in rule.values
        case "NotIn":
            return labels.get(rule.key) not in rule.values
        case "Exists":
            return rule.key in labels
        case "DoesNotExist":
            return rule.key not in labels
