"""The cloud's controller, as far as the testbed needs one: it gives out the load balancer's address.

It runs in a pod, with Python's standard library alone. Every LoadBalancer Service and every Ingress gets it.
"""

import argparse
import json
import ssl
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

_SERVER = "https://kubernetes.default.svc"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Of token and ca.crt; read each time, for tokens are renewed."""
_EVERY_SECONDS = 2.0
_SECONDS = 10.0
_RESOURCES = (
    ("/api/v1", "services", "?fieldSelector=spec.type%3DLoadBalancer"),
    ("/apis/networking.k8s.io/v1", "ingresses", ""),
)


def main() -> None:
    """Run until killed; what fails is reported, and tried again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="the load balancer's")
    address = parser.parse_args().address
    while True:
        try:
            for done in give_address(address):
                print(done, flush=True)
        except OSError as error:
            print(f"{_SERVER}: {error}; next try in {_EVERY_SECONDS:g} s", file=sys.stderr, flush=True)
        time.sleep(_EVERY_SECONDS)


def give_address(address: str) -> list[str]:
    wanted = {"ingress": [{"ip": address}]}
    done = []
    for base, plural, query in _RESOURCES:
        for item in _ask("GET", f"{base}/{plural}{query}")["items"]:
            found = item.get("status", {}).get("loadBalancer", {}).get("ingress") or []
            # The server adds ipMode and ports of its own.
            if [one.get("ip") for one in found] == [address]:
                continue
            namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
            path = f"{base}/namespaces/{namespace}/{plural}/{name}/status"
            _ask("PATCH", path, {"status": {"loadBalancer": wanted}})
            done.append(f"{plural} {namespace}/{name}: {address}")
    return done


def _ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {
        "Authorization": f"Bearer {(_ACCOUNT / 'token').read_text('ascii').strip()}",
        "Content-Type": "application/merge-patch+json",
    }
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(_SERVER + path, data, headers, method=method)  # noqa: S310 - https alone
    context = ssl.create_default_context(cafile=_ACCOUNT / "ca.crt")
    # No proxy: the server is the cluster's own.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(request, timeout=_SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


if __name__ == "__main__":
    main()
