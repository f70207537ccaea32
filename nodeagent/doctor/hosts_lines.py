"""Lines of the hosts file that lead a load balancer's name astray. Pure."""

from collections.abc import Iterable, Mapping

from nodeagent.doctor.codes import Code
from nodeagent.doctor.finding import Finding
from nodeagent.model.facts import UserHostsLine


def hosts_line_findings(
    user_names: Mapping[str, UserHostsLine], names: Mapping[str, frozenset[str]], file: str
) -> list[Finding]:
    """Judges the user's own lines.

    Args:
        user_names: the names that the hosts file sets outside the managed block.
        names: the names of load balancers, each with the addresses (as text) that are right for it.
        file: the hosts file, for a person.
    """
    found = list(_findings(user_names, names, file))
    return found or [
        Finding(Code.HostsLinesClean, file, "no line outside the managed block leads a name astray")
    ]


def _findings(
    user_names: Mapping[str, UserHostsLine], names: Mapping[str, frozenset[str]], file: str
) -> Iterable[Finding]:
    for name in sorted(names):
        line = user_names.get(name)
        if line is None or line.address in names[name]:
            continue
        subject = f"{file}:{line.line_number}"
        if line.by_hairpin_proxy:
            yield Finding(
                Code.HairpinProxyLine,
                subject,
                f"hairpin-proxy's old line sends {name} to {line.address}",
                remedy=("let nodeagent take it over", "$ nodeagent apply --adopt"),
            )
        else:
            yield Finding(
                Code.StaleHostsLine,
                subject,
                f"sends {name} to {line.address}, which is no address of its load balancer",
                remedy=(f"remove line {line.line_number} of {file}, if it is not there on purpose",),
            )
