"""What is planned for an example of each kind that claims hostnames, and of each provider."""

import json
from typing import Any

import pytest
import yaml

from nodeagent.model.desired import DecisionStatus, Desired
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS, ControllerKind
from tests.apiserver import objects
from tests.plan.made_up import FACTS, config

_INGRESS = (
    "metadata: {name: nginx, namespace: web, annotations: {%s}}\n"
    "spec: {ingressClassName: nginx, rules: [{host: example.com}]}"
)

# Source (repository: path, as of 2026), API and kind, the example without these, the hostnames it claims.
KINDS: list[tuple[str, str, str, list[str]]] = [
    (
        "kubernetes/ingress-nginx: docs/user-guide/nginx-configuration/annotations.md, Server Alias",
        "networking.k8s.io/v1 Ingress",
        _INGRESS % 'nginx.ingress.kubernetes.io/server-alias: "alias.example.com, b.example.com,~^www[0-9]"',
        ["alias.example.com", "b.example.com", "example.com"],
    ),
    (
        "kubernetes/ingress-nginx: the same, Redirect from/to www",
        "networking.k8s.io/v1 Ingress",
        _INGRESS % 'nginx.ingress.kubernetes.io/from-to-www-redirect: "true"',
        ["example.com", "www.example.com"],
    ),
    (
        "jcmoraisjr/haproxy-ingress: docs/content/en/docs/configuration/keys.md, Server alias",
        "networking.k8s.io/v1 Ingress",
        _INGRESS % "haproxy-ingress.github.io/server-alias: '*.my.domain'",
        ["*.my.domain", "example.com"],
    ),
    (
        "traefik/traefik: docs/content/reference/routing-configuration/kubernetes/crd/http/ingressroute.md",
        "traefik.io/v1alpha1 IngressRoute",
        "spec: {entryPoints: [web], routes: [{kind: Rule, match: Host(`test.example.com`), services: []}]}",
        ["test.example.com"],
    ),
    (
        "traefik/traefik: docs/content/reference/routing-configuration/kubernetes/crd/tcp/ingressroutetcp.md",
        "traefik.io/v1alpha1 IngressRouteTCP",
        "spec: {entryPoints: [footcp], routes: [{match: HostSNI(`tcp.example.com`), services: []}]}",
        ["tcp.example.com"],
    ),
    (
        "istio/istio.io: content/en/docs/tasks/traffic-management/ingress/ingress-control",
        "networking.istio.io/v1 Gateway",
        "spec: {servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [httpbin.example.com]}]}",
        ["httpbin.example.com"],
    ),
    (
        "istio/istio.io: the same",
        "networking.istio.io/v1 VirtualService",
        "spec: {hosts: [httpbin.example.com], gateways: [httpbin-gateway], http: []}",
        ["httpbin.example.com"],
    ),
    (
        "projectcontour/contour: examples/example-workload/httpproxy/01-ingress-to-httpproxy",
        "projectcontour.io/v1 HTTPProxy",
        (
            "spec: {ingressClassName: contour, virtualhost: {fqdn: foo-basic.example.com}, routes: []}\n"
            "status: {currentStatus: valid, loadBalancer: {ingress: [{ip: 203.0.113.10}]}}"
        ),
        ["foo-basic.example.com"],
    ),
    (
        "nginx/kubernetes-ingress: examples/custom-resources/basic-configuration/cafe-virtual-server.yaml",
        "k8s.nginx.org/v1 VirtualServer",
        (
            "spec: {host: cafe.example.com, tls: {secret: app-tls-secret}, upstreams: [], routes: []}\n"
            "status: {state: Valid, externalEndpoints: [{ip: 203.0.113.10, ports: '[80,443]'}]}"
        ),
        ["cafe.example.com"],
    ),
    (
        "nginx/kubernetes-ingress: examples/custom-resources/tls-passthrough",
        "k8s.nginx.org/v1 TransportServer",
        "spec: {listener: {name: tls-passthrough, protocol: TLS_PASSTHROUGH}, host: app.example.com}",
        ["app.example.com"],
    ),
    (
        "openshift/api: route/v1/types.go, RouteSpec, RouteIngress",
        "route.openshift.io/v1 Route",
        (
            "spec: {host: www.example.com, to: {kind: Service, name: hello-openshift}}\n"
            "status: {ingress: [{host: www.example.com, routerCanonicalHostname: router.apps.example.com}]}"
        ),
        ["www.example.com"],
    ),
    (
        "apache/apisix-ingress-controller: docs/en/latest/concepts/apisix_route.md",
        "apisix.apache.org/v2 ApisixRoute",
        (
            "spec: {http: [{match: {hosts: [foo.com], paths: [/foo/*]}}, {match: {paths: [/bar/*]}}],\n"
            "  stream: [{name: tcp, protocol: TCP, match: {ingressPort: 9100, host: tcp.foo.com}}]}"
        ),
        ["foo.com", "tcp.foo.com"],
    ),
    (
        "apache/apisix-ingress-controller: docs/en/latest/concepts/apisix_tls.md",
        "apisix.apache.org/v2 ApisixTls",
        "spec: {hosts: [httpbin.org], secret: {name: htpbin-cert, namespace: default}}",
        ["httpbin.org"],
    ),
    (
        "emissary-ingress/emissary: pkg/api/getambassador.io/v3alpha1, HostSpec",
        "getambassador.io/v3alpha1 Host",
        "spec: {hostname: host.example.com}",
        ["host.example.com"],
    ),
    (
        "emissary-ingress/emissary: the same, MappingSpec",
        "getambassador.io/v3alpha1 Mapping",
        "spec: {hostname: quote.example.com, prefix: /backend/, service: quote}",
        ["quote.example.com"],
    ),
    (
        "emissary-ingress/emissary: the same, of every host",
        "getambassador.io/v3alpha1 Mapping",
        "spec: {hostname: '*', prefix: /, service: quote}",
        [],
    ),
    (
        "emissary-ingress/emissary: the same, TCPMappingSpec",
        "getambassador.io/v3alpha1 TCPMapping",
        "spec: {port: 8443, host: tcp.example.com, service: my-tcp}",
        ["tcp.example.com"],
    ),
    (
        "zalando/skipper: docs/kubernetes/routegroup-crd.md",
        "zalando.org/v1 RouteGroup",
        (
            "spec: {hosts: [api.example.org, legacy-name.example.org], tls: [{hosts: [api.example.org]}]}\n"
            "status: {loadBalancer: {routegroup: [{hostname: lb.example.org}]}}"
        ),
        ["api.example.org", "legacy-name.example.org"],
    ),
    (
        "solo-io/gloo: projects/gateway/api/v1/virtual_service.proto, VirtualHost",
        "gateway.solo.io/v1 VirtualService",
        "spec: {virtualHost: {domains: ['*', x.example.com:8080, petstore.example.com]}}",
        ["petstore.example.com"],
    ),
]


def planned(*manifests: object, options: str = "{detect: true}") -> Desired:
    """The plan for these objects; every hostname is trusted."""
    snapshot = read_manifests("\n---\n".join(map(json.dumps, manifests)).encode(), "node1")
    assert snapshot.unreadable == ()
    return plan(snapshot, FACTS, config(f"hosts: {{allow: [com, org, domain]}}\nloadBalancers: {options}"))


def document(kind: str, example: str) -> dict[str, Any]:
    """The object of an example."""
    version, _, name = kind.partition(" ")
    return {"apiVersion": version, "kind": name, "metadata": {"name": "it"}, **yaml.safe_load(example)}


def balancer(name: str = "blue", last: int = 10) -> dict[str, Any]:
    """A load balancer that says itself that it sends PROXY."""
    own = {"nodeagent.io/proxy-protocol": "v2"}
    return objects.load_balancer(name, "ingress", addresses=[f"203.0.113.{last}"], annotations=own)


@pytest.mark.parametrize(("source", "kind", "example", "hostnames"), KINDS, ids=[row[0] for row in KINDS])
def test_the_hostnames_of_each_kind_are_planned(
    source: str, kind: str, example: str, hostnames: list[str]
) -> None:
    found = planned(balancer(), document(kind, example))
    assert sorted(decision.name for decision in found.names) == hostnames, source
    for decision in found.names:
        wanted = "Wildcard" if decision.name.startswith("*") else "Allowed"
        if "RouteGroup" in kind:  # it reports a load balancer that is none of the cluster's Services
            wanted = "UnknownLoadBalancer"
        assert decision.code == wanted, decision.reason


def test_the_hostnames_of_a_service_for_external_dns_are_planned() -> None:
    """As in its documentation, docs/annotations/annotations.md."""
    service = balancer()
    keys = ("external-dns.kubernetes.io/hostname", "external-dns.alpha.kubernetes.io/hostname")
    service["metadata"]["annotations"] |= dict(
        zip(keys, ("a.example.com", "b.example.com,a.example.com"), strict=True)
    )
    found = planned(service)
    assert {decision.name: decision.code for decision in found.names} == {
        "a.example.com": "Allowed",
        "b.example.com": "Allowed",
    }


def test_each_kind_has_an_example() -> None:
    shown = {(kind.partition("/")[0], kind.partition(" ")[2]) for _, kind, _, _ in KINDS}
    assert {(row.group, row.kind) for row in CONTROLLER_KINDS} <= shown


@pytest.mark.parametrize("row", CONTROLLER_KINDS, ids=lambda row: f"{row.kind}.{row.group}")
def test_the_class_of_a_kind_or_that_of_its_controller_leads_to_a_load_balancer(row: ControllerKind) -> None:
    """`ingressClassName` counts, else the only class of the controller."""
    found = next(
        document(kind, text)
        for _, kind, text, _ in KINDS
        if kind.startswith(row.group) and kind.endswith(f" {row.kind}")
    )
    found.pop("status", None)
    found["spec"]["ingressClassName"] = "mine"
    entry = "{class: mine, namespace: ingress, name: green}"
    desired = planned(balancer(), balancer("green", 20), found, options=f"{{ingressClasses: [{entry}]}}")
    assert {str(one.load_balancer) for one in desired.names} == {"Service ingress/green"}


@pytest.mark.parametrize("entries", ["[{ip: nonsense}]", "[{ip: 7}, 8]", "nothing"])
def test_a_status_with_a_bad_address_or_of_another_type_leaves_the_object_readable(entries: str) -> None:
    """What is wrong is reported, and the class counts."""
    example = f"spec: {{host: cafe.example.com}}\nstatus: {{externalEndpoints: {entries}}}"
    (decision,) = planned(balancer(), document("k8s.nginx.org/v1 VirtualServer", example)).names
    assert decision.status is DecisionStatus.SERVED
