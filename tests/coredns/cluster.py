"""A cluster with one PROXY load balancer, an Ingress, and CoreDNS's ConfigMaps, in the simulated API."""

from collections.abc import Mapping
from pathlib import Path

from nodeagent.config.reading import parse_config
from tests.apiserver import ApiServer, objects
from tests.apiserver.resources import Object
from tests.coredns import corpus

ADDRESS = "203.0.113.10"
NAMESPACE = "kube-system"

CONFIG_TEXT = Path(__file__).with_name("nodeagent.yaml").read_text("utf-8")
CONFIG = parse_config(CONFIG_TEXT, "nodeagent.yaml")


def fill(api: ApiServer, corefile: str = "kubeadm", hosts: tuple[str, ...] = ("app.example.com",)) -> None:
    api.store.create(objects.load_balancer("controller", "ingress", addresses=[ADDRESS], annotations={}))
    api.store.create(objects.ingress("site", hosts=hosts, addresses=[ADDRESS]))
    api.store.create(objects.config_map("coredns", NAMESPACE, {"Corefile": corpus.corefile(corefile)}))


def add_name(api: ApiServer, name: str) -> None:
    made = objects.ingress(name.partition(".")[0].replace("*", "any"), hosts=[name], addresses=[ADDRESS])
    api.store.create(made)


def config_map(api: ApiServer, name: str = "coredns") -> Object:
    found: Object = api.store.get("configmaps", name, NAMESPACE)
    return found


def corefile(api: ApiServer) -> str:
    text: str = config_map(api)["data"]["Corefile"]
    return text


def put(api: ApiServer, data: Mapping[str, str], name: str = "coredns", manager: str = "") -> None:
    """Write a ConfigMap as another program would, who calls itself `manager`."""
    made = objects.config_map(name, NAMESPACE, data)
    if manager:
        made["metadata"]["managedFields"] = [{"manager": manager, "time": "2026-01-01T00:00:00Z"}]
    api.store.apply(made)
