"""The rules of legacy iptables on a node: read, restored, and kube-proxy's jumps before all others."""

from tests.testbed.kube_proxy import JUMPS
from tests.testbed.namespaces import Host


def legacy_rules(node: Host) -> str:
    return node.run(["iptables-legacy-save", "-t", "nat"]).stdout


def restore_legacy(node: Host, lines: str) -> None:
    command = ["iptables-legacy-restore", "--wait", "5", "--noflush"]
    node.run(command, stdin=f"*nat\n{lines}COMMIT\n")


def push_down(node: Host) -> None:
    """Put kube-proxy's jumps at the top, as it does when it starts: all at once."""
    jumps = [f'{chain} -m comment --comment "{comment}" -j {target}\n' for chain, comment, target in JUMPS]
    restore_legacy(node, "".join(f"-D {jump}-I {jump}" for jump in jumps))


def is_on_top(node: Host) -> bool:
    lines = legacy_rules(node).splitlines()
    return all(
        next(line for line in lines if line.startswith(f"-A {chain} ")).endswith(f"-j NODEAGENT-{chain}")
        for chain in ("OUTPUT", "PREROUTING")
    )
