"""The simulated API server as a process: `python -m tests.apiserver --address A --port P --objects DIR`.

Prints one line with its URL when it listens. SIGUSR1 makes it refuse connections, SIGUSR2 makes it listen
again, SIGTERM and SIGINT end it. /_control/ is served.
"""

import argparse
import signal
import sys
from pathlib import Path

from .access import rules_bound_to, rules_from_yaml
from .manifests import objects_under
from .server import ApiServer, Options, Tls


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.apiserver", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 for a free one")
    parser.add_argument("--objects", type=Path, action="append", default=[], help="YAML file or directory")
    parser.add_argument("--token", help="bearer token that clients must bring")
    parser.add_argument("--rbac", type=Path, help="YAML file with ClusterRoles and Roles to enforce")
    parser.add_argument(
        "--account", metavar="NAMESPACE/NAME", help="enforce only what --rbac binds to this account"
    )
    parser.add_argument("--tls-cert", type=Path, help="PEM file with the certificate")
    parser.add_argument("--tls-key", type=Path, help="PEM file with its key")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig file here")
    parser.add_argument("--bookmarks", type=float, default=0.5, help="seconds between bookmarks")
    return parser.parse_args()


def _grant(api: ApiServer, rbac: Path, account: str | None) -> None:
    if account is None:
        api.access.allow_only(rules_from_yaml(rbac.read_text(encoding="utf-8")))
    else:
        namespace, _, name = account.partition("/")
        api.access.allow_only(rules_bound_to(objects_under(rbac), namespace, name))


def main() -> None:
    """Serve until a signal says to end."""
    arguments = _arguments()
    signals = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGINT}
    # Blocked here, before any thread is there to inherit another mask: sigwait is the only one to see them.
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    tls = Tls(arguments.tls_cert, arguments.tls_key, arguments.tls_cert) if arguments.tls_cert else None
    options = Options(bookmark_interval=arguments.bookmarks, control=True)
    api = ApiServer(arguments.address, arguments.port, tls=tls, options=options)
    for path in arguments.objects:
        for obj in objects_under(path):
            api.store.create(obj)
    if arguments.token:
        api.access.require_token(arguments.token)
    if arguments.rbac:
        _grant(api, arguments.rbac, arguments.account)
    with api:
        if arguments.kubeconfig:
            api.write_kubeconfig(arguments.kubeconfig)
        sys.stdout.write(f"listening on {api.url}\n")
        sys.stdout.flush()
        listening = True
        while (received := signal.sigwait(signals)) in {signal.SIGUSR1, signal.SIGUSR2}:
            wanted = received == signal.SIGUSR2
            if wanted and not listening:
                api.start_listening()
            elif listening and not wanted:
                api.stop_listening()
            listening = wanted


if __name__ == "__main__":
    main()
