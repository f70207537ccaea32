"""What is planned for an example of each kind that claims hostnames, and of each provider."""

import json
from typing import Any

import pytest
import yaml

from nodeagent.model.desired import DecisionStatus, Desired
from nodeagent.plan.planner import plan
from nodeagent.sources.manifests import read_manifests
from nodeagent.sources.objects.kinds import CONTROLLER_KINDS, ControllerKind
from tests.plan.made_up import FACTS, config

_CLASS = (
    "apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: mine}\nspec: {controller: %s}\n"
)
_INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: nginx, namespace: web, annotations: {%s}}
spec: {ingressClassName: nginx, rules: [{host: example.com}]}
"""

# Source (repository: path, as of 2026), the example, the hostnames that it claims.
KINDS: list[tuple[str, str, list[str]]] = [
    (
        "kubernetes/ingress-nginx: docs/user-guide/nginx-configuration/annotations.md, Server Alias",
        _INGRESS % 'nginx.ingress.kubernetes.io/server-alias: "alias.example.com, b.example.com,~^www[0-9]"',
        ["alias.example.com", "b.example.com", "example.com"],
    ),
    (
        "kubernetes/ingress-nginx: the same, Redirect from/to www",
        _INGRESS % 'nginx.ingress.kubernetes.io/from-to-www-redirect: "true"',
        ["example.com", "www.example.com"],
    ),
    (
        "jcmoraisjr/haproxy-ingress: docs/content/en/docs/configuration/keys.md, Server alias",
        _INGRESS % "haproxy-ingress.github.io/server-alias: '*.my.domain'",
        ["*.my.domain", "example.com"],
    ),
    (
        "kubernetes-sigs/external-dns: docs/annotations/annotations.md",
        """\
apiVersion: v1
kind: Service
metadata:
  name: nginx
  namespace: web
  annotations:
    external-dns.alpha.kubernetes.io/hostname: "a.example.com,b.example.com"
    nodeagent.io/proxy-protocol: v2
spec: {type: LoadBalancer, clusterIP: 10.96.0.7, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 203.0.113.30}]}}
""",
        ["a.example.com", "b.example.com"],
    ),
    (
        "traefik/traefik: docs/content/reference/routing-configuration/kubernetes/crd/http/ingressroute.md",
        """\
apiVersion: traefik.io/v1alpha1
kind: IngressRoute
metadata: {name: test-name, namespace: apps}
spec:
  entryPoints: [web]
  routes:
  - {kind: Rule, match: "Host(`test.example.com`)", services: [{kind: Service, name: foo, port: 80}]}
""",
        ["test.example.com"],
    ),
    (
        "traefik/traefik: docs/content/reference/routing-configuration/kubernetes/crd/tcp/ingressroutetcp.md",
        """\
apiVersion: traefik.io/v1alpha1
kind: IngressRouteTCP
metadata: {name: ingressroutetcpfoo, namespace: apps}
spec:
  entryPoints: [footcp]
  routes: [{match: "HostSNI(`tcp.example.com`)", services: [{name: foo, port: 8080}]}]
""",
        ["tcp.example.com"],
    ),
    (
        "istio/istio.io: content/en/docs/tasks/traffic-management/ingress/ingress-control",
        """\
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: httpbin-gateway}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [httpbin.example.com]}]
""",
        ["httpbin.example.com"],
    ),
    (
        "istio/istio.io: the same",
        """\
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: httpbin}
spec: {hosts: [httpbin.example.com], gateways: [httpbin-gateway], http: []}
""",
        ["httpbin.example.com"],
    ),
    (
        "projectcontour/contour: examples/example-workload/httpproxy/01-ingress-to-httpproxy",
        """\
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: basic}
spec:
  ingressClassName: contour
  virtualhost: {fqdn: foo-basic.example.com}
  routes: [{conditions: [{prefix: /}], services: [{name: s1, port: 80}]}]
status: {currentStatus: valid, loadBalancer: {ingress: [{ip: 203.0.113.10}]}}
""",
        ["foo-basic.example.com"],
    ),
    (
        "nginx/kubernetes-ingress: examples/custom-resources/basic-configuration/cafe-virtual-server.yaml",
        """\
apiVersion: k8s.nginx.org/v1
kind: VirtualServer
metadata: {name: cafe}
spec: {host: cafe.example.com, tls: {secret: app-tls-secret}, upstreams: [], routes: []}
status: {state: Valid, externalEndpoints: [{ip: 203.0.113.10, ports: "[80,443]"}]}
""",
        ["cafe.example.com"],
    ),
    (
        "nginx/kubernetes-ingress: examples/custom-resources/tls-passthrough",
        """\
apiVersion: k8s.nginx.org/v1
kind: TransportServer
metadata: {name: secure-app}
spec: {listener: {name: tls-passthrough, protocol: TLS_PASSTHROUGH}, host: app.example.com}
status: {state: Valid}
""",
        ["app.example.com"],
    ),
    (
        "openshift/api: route/v1/types.go, RouteSpec, RouteIngress",
        """\
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: hello-openshift}
spec: {host: www.example.com, to: {kind: Service, name: hello-openshift}}
status:
  ingress: [{host: www.example.com, routerName: default, routerCanonicalHostname: router.apps.example.com}]
""",
        ["www.example.com"],
    ),
    (
        "apache/apisix-ingress-controller: docs/en/latest/concepts/apisix_route.md",
        """\
apiVersion: apisix.apache.org/v2
kind: ApisixRoute
metadata: {name: foo-bar-route}
spec:
  http:
  - {name: foo, match: {hosts: [foo.com], paths: ["/foo/*"]}, backends: [{serviceName: foo, servicePort: 80}]}
  - {name: bar, match: {paths: ["/bar/*"]}, backends: [{serviceName: bar, servicePort: 80}]}
  stream: [{name: tcp, protocol: TCP, match: {ingressPort: 9100, host: tcp.foo.com}}]
""",
        ["foo.com", "tcp.foo.com"],
    ),
    (
        "apache/apisix-ingress-controller: docs/en/latest/concepts/apisix_tls.md",
        """\
apiVersion: apisix.apache.org/v2
kind: ApisixTls
metadata: {name: sample-tls}
spec: {hosts: [httpbin.org], secret: {name: htpbin-cert, namespace: default}}
""",
        ["httpbin.org"],
    ),
    (
        "emissary-ingress/emissary: pkg/api/getambassador.io/v3alpha1, HostSpec",
        """\
apiVersion: getambassador.io/v3alpha1
kind: Host
metadata: {name: minimal-host}
spec: {hostname: host.example.com}
""",
        ["host.example.com"],
    ),
    (
        "emissary-ingress/emissary: the same, MappingSpec",
        """\
apiVersion: getambassador.io/v3alpha1
kind: Mapping
metadata: {name: quote-backend}
spec: {hostname: quote.example.com, prefix: /backend/, service: quote}
---
apiVersion: getambassador.io/v3alpha1
kind: Mapping
metadata: {name: everywhere}
spec: {hostname: "*", prefix: /, service: quote}
""",
        ["quote.example.com"],
    ),
    (
        "emissary-ingress/emissary: the same, TCPMappingSpec",
        """\
apiVersion: getambassador.io/v3alpha1
kind: TCPMapping
metadata: {name: my-tcp}
spec: {port: 8443, host: tcp.example.com, service: my-tcp}
""",
        ["tcp.example.com"],
    ),
    (
        "zalando/skipper: docs/kubernetes/routegroup-crd.md",
        """\
apiVersion: zalando.org/v1
kind: RouteGroup
metadata: {name: my-routes}
spec:
  hosts: [api.example.org, legacy-name.example.org]
  tls: [{hosts: [api.example.org], secretName: api}]
status: {loadBalancer: {routegroup: [{hostname: lb.example.org}]}}
""",
        ["api.example.org", "legacy-name.example.org"],
    ),
    (
        "solo-io/gloo: projects/gateway/api/v1/virtual_service.proto, VirtualHost",
        """\
apiVersion: gateway.solo.io/v1
kind: VirtualService
metadata: {name: default, namespace: gloo-system}
spec: {virtualHost: {domains: ["*", "x.example.com:8080", petstore.example.com]}}
""",
        ["petstore.example.com"],
    ),
]


def planned(*manifests: object) -> Desired:
    """The plan for manifests as texts and objects; every hostname is trusted."""
    texts = (each if isinstance(each, str) else yaml.safe_dump(each) for each in manifests)
    snapshot = read_manifests("\n---\n".join(texts).encode(), "node1")
    assert snapshot.unreadable == ()
    options = config("hosts: {allow: [com, org, domain]}\nloadBalancers: {detect: true}")
    return plan(snapshot, FACTS, options)


def balancer(**metadata: object) -> dict[str, Any]:
    """A load balancer that says itself that it sends PROXY."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "blue",
            "namespace": "ingress",
            "annotations": {"nodeagent.io/proxy-protocol": "v2"},
            **metadata,
        },
        "spec": {
            "type": "LoadBalancer",
            "clusterIP": "10.96.0.5",
            "ports": [{"name": "https", "port": 443}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.10"}]}},
    }


@pytest.mark.parametrize(("source", "example", "hostnames"), KINDS, ids=[row[0] for row in KINDS])
def test_the_hostnames_of_each_kind_are_planned(source: str, example: str, hostnames: list[str]) -> None:
    found = planned(balancer(), example)
    assert sorted(decision.name for decision in found.names) == hostnames, source
    for decision in found.names:
        wanted = "Wildcard" if decision.name.startswith("*") else "Allowed"
        if "RouteGroup" in example:  # it reports a load balancer that is none of the cluster's Services
            wanted = "UnknownLoadBalancer"
        assert decision.code == wanted, decision.reason


def test_each_kind_has_an_example() -> None:
    documents = [each for _, text, _ in KINDS for each in yaml.safe_load_all(text)]
    shown = {(one["apiVersion"].partition("/")[0], one["kind"]) for one in documents}
    assert {(row.group, row.kind) for row in CONTROLLER_KINDS} <= shown


@pytest.mark.parametrize("row", CONTROLLER_KINDS, ids=lambda row: f"{row.kind}.{row.group}")
def test_the_class_of_a_kind_or_that_of_its_controller_leads_to_a_load_balancer(row: ControllerKind) -> None:
    """`ingressClassName` counts, else the only class of the controller."""
    example = next(text for _, text, _ in KINDS if f"kind: {row.kind}\n" in text and row.group in text)
    document = next(yaml.safe_load_all(example))
    document.pop("status", None)
    document["spec"]["ingressClassName"] = "mine"
    other = balancer(name="green")
    other["spec"]["clusterIP"] = "10.96.0.6"
    other["status"]["loadBalancer"]["ingress"][0]["ip"] = "203.0.113.20"
    entry = "{class: mine, namespace: ingress, name: green}"
    text = "\n---\n".join(map(json.dumps, (balancer(), other, document)))
    options = config(f"hosts: {{allow: [com, org]}}\nloadBalancers: {{ingressClasses: [{entry}]}}")
    found = plan(read_manifests(text.encode(), "node1"), FACTS, options)
    assert {str(one.load_balancer) for one in found.names} == {"Service ingress/green"}


def test_a_status_with_a_bad_address_or_of_another_type_leaves_the_object_readable() -> None:
    """What is wrong is reported, and the class counts."""
    for entries in ("[{ip: nonsense}]", "[{ip: 7}, 8]", "nothing"):
        example = (
            "apiVersion: k8s.nginx.org/v1\nkind: VirtualServer\nmetadata: {name: cafe}\n"
            f"spec: {{host: cafe.example.com}}\nstatus: {{externalEndpoints: {entries}}}\n"
        )
        (decision,) = planned(balancer(), example).names
        assert decision.status is DecisionStatus.SERVED
