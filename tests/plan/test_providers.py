"""Every row of the providers' table, with what switches PROXY on, what does not, and the traps of each."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from nodeagent.config.options import LoadBalancerOptions
from nodeagent.model.objects import Service
from nodeagent.plan.identity.identify import Identity, identify
from nodeagent.plan.identity.providers import KNOWN_SCHEMES, PROVIDERS
from tests.plan.made_up import service

BETA = "service.beta.kubernetes.io"
DO = f"{BETA}/do-loadbalancer-enable-proxy-protocol"
DO_TYPE = f"{BETA}/do-loadbalancer-type"
HETZNER = "load-balancer.hetzner.cloud/uses-proxyprotocol"
OPENSTACK = "loadbalancer.openstack.org/proxy-protocol"
OVH = f"{BETA}/ovh-loadbalancer-proxy-protocol"
SCALEWAY_1 = f"{BETA}/scw-loadbalancer-proxy-protocol-v1"
SCALEWAY_2 = f"{BETA}/scw-loadbalancer-proxy-protocol-v2"
SCALEWAY_OLD = f"{BETA}/scw-loadbalancer-send-proxy-v2"
LINODE = f"{BETA}/linode-loadbalancer-default-proxy-protocol"
LINODE_OLD = f"{BETA}/linode-loadbalancer-proxy-protocol"
LINODE_443 = f"{BETA}/linode-loadbalancer-port-443"
VULTR = f"{BETA}/vultr-loadbalancer-proxy-protocol"
AWS = f"{BETA}/aws-load-balancer-proxy-protocol"
AWS_TYPE = f"{BETA}/aws-load-balancer-type"
AWS_GROUPS = f"{BETA}/aws-load-balancer-proxy-protocol-per-target-group"
AWS_ATTRIBUTES = f"{BETA}/aws-load-balancer-target-group-attributes"
OCI = f"{BETA}/oci-load-balancer-connection-proxy-protocol-version"
OCI_TYPE = "oci.oraclecloud.com/load-balancer-type"
OCI_NLB = "oci-network-load-balancer.oraclecloud.com/is-ppv2-enabled"
UPCLOUD = f"{BETA}/upcloud-load-balancer-config"
STACKIT = "lb.stackit.cloud/tcp-proxy-protocol"
STACKIT_PORTS = "lb.stackit.cloud/tcp-proxy-protocol-ports-filter"
YAWOL = "yawol.stackit.cloud/tcpProxyProtocol"
YAWOL_PORTS = "yawol.stackit.cloud/tcpProxyProtocolPortsFilter"
ALIBABA = f"{BETA}/alibaba-cloud-loadbalancer-proxy-protocol"
ALIBABA_OLD = f"{BETA}/alicloud-loadbalancer-proxy-protocol"
CIVO = "kubernetes.civo.com/loadbalancer-enable-proxy-protocol"
CLOUDSCALE = "k8s.cloudscale.ch/loadbalancer-pool-protocol"
OUTSCALE = f"{BETA}/osc-load-balancer-proxy-protocol"
CLOUDSTACK = f"{BETA}/cloudstack-load-balancer-proxy-protocol"
IBM = "service.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features"
AZURE = f"{BETA}/azure-pls-proxy-protocol"
AZURE_PLS = f"{BETA}/azure-pls-create"
BRIGHTBOX = f"{BETA}/brightbox-load-balancer-listener-proxy-protocol"
VOLCENGINE = f"{BETA}/volcengine-loadbalancer-proxy-protocol"
NAVER = f"{BETA}/ncloud-load-balancer-proxy-protocol"
VNG = "vks.vngcloud.vn/enable-proxy-protocol"
VNG_GLOBAL = "glb.vks.vngcloud.vn/enable-proxy-protocol"
LOXILB = "loxilb.io/useproxyprotov2"
GCORE = "loadbalancer.gcore.com/proxy-protocol"
GCORE_OLD = "loadbalancer.gcorelabs.com/proxy-protocol"
NHN = "loadbalancer.nhncloud/proxy-protocol"
BIZFLY = "kubernetes.bizflycloud.vn/enable-proxy-protocol"
SERVERS = "servers.com/proxy-protocol"
KUBELB = "kubelb.k8c.io/proxy-protocol"
CHISEL = "chisel-operator.io/proxy-protocol"
THALASSA = "loadbalancer.k8s.thalassa.cloud/enable-proxy-protocol"
EVROC = "ccm.evroc.com/proxy-protocol"
CLOUD_DK = "kubernetes.cloud.dk/load-balancer-enable-proxy-protocol"
VERDA = "verda.cluster.x-k8s.io/proxy-protocol"
TATNET = "tatnet.ru/lb-proxy-protocol"
HYPERVISOR = f"{BETA}/managed-loadbalancer-proxy-protocol"
XELON = f"{BETA}/xelon-load-balancer-cluster-proxy-protocol-version"

CLASSIC, NLB, CONTROLLER = (
    f"AWS ({kind})" for kind in ("Classic Load Balancer", "Network Load Balancer", "Load Balancer Controller")
)
ORACLE_NLB = "Oracle (Network Load Balancer)"
PLS = "Azure (Private Link Service)"
AWS_ON, AWS_OFF = "proxy_protocol_v2.enabled=true", "proxy_protocol_v2.enabled=false"
ARABIC_30443 = "\u0663\u0660\u0664\u0664\u0663"

ALL_V1 = {22: "v1", 80: "v1", 443: "v1"}
ALL_V2 = {22: "v2", 80: "v2", 443: "v2"}
OFF: dict[int, str] = {}

UPCLOUD_HTTPS = '{"backends": [{"name": "https", "properties": {"outbound_proxy_protocol": "%s"}}]}'

# Provider, annotations, and the ports of 22 (ssh), 80 (http) and 443 (https) that send PROXY.
READ: list[tuple[str, Mapping[str, str], Mapping[int, str]]] = [
    *[("DigitalOcean", {DO: value}, ALL_V1) for value in ("1", "t", "T", "TRUE", "true", "True")],
    *[("DigitalOcean", {DO: value}, OFF) for value in ("0", "f", "F", "FALSE", "false", "False")],
    ("DigitalOcean", {DO: "true", DO_TYPE: "REGIONAL"}, ALL_V1),
    ("DigitalOcean", {DO: "false", DO_TYPE: "REGIONAL_NETWORK"}, OFF),
    ("Hetzner", {HETZNER: "true"}, ALL_V1),
    ("Hetzner", {HETZNER: "True"}, ALL_V1),
    ("Hetzner", {HETZNER: "false"}, OFF),
    ("OpenStack", {OPENSTACK: "true"}, ALL_V1),
    ("OpenStack", {OPENSTACK: "v1"}, ALL_V1),
    ("OpenStack", {OPENSTACK: "v2"}, ALL_V2),
    ("OpenStack", {OPENSTACK: "false"}, OFF),
    # Compared as written: what other providers take for true switches nothing on.
    *[("OpenStack", {OPENSTACK: value}, OFF) for value in ("True", "TRUE", "1", "V2", "", "yes")],
    ("OVH (IOLB)", {OVH: "v1"}, ALL_V1),
    *[("OVH (IOLB)", {OVH: value}, ALL_V2) for value in ("v2", "v2-ssl", "v2-ssl-cn")],
    ("Scaleway", {SCALEWAY_1: "true"}, ALL_V1),
    ("Scaleway", {SCALEWAY_1: "*"}, ALL_V1),
    ("Scaleway", {SCALEWAY_2: "T"}, ALL_V2),
    ("Scaleway", {SCALEWAY_OLD: "true"}, ALL_V2),
    ("Scaleway", {SCALEWAY_1: "80,443"}, {80: "v1", 443: "v1"}),
    ("Scaleway", {SCALEWAY_1: "80", SCALEWAY_2: " 443 , 22"}, {80: "v1", 443: "v2", 22: "v2"}),
    ("Scaleway", {SCALEWAY_1: "false", SCALEWAY_2: "443"}, {443: "v2"}),
    ("Scaleway", {SCALEWAY_1: "0x50"}, {80: "v1"}),
    # `1` is a port, and the Service has no such port.
    ("Scaleway", {SCALEWAY_1: "1"}, OFF),
    ("Scaleway", {SCALEWAY_2: "8443"}, OFF),
    ("Scaleway", {SCALEWAY_1: ""}, OFF),
    # The old key decides only for ports in neither list, and is a boolean first.
    ("Scaleway", {SCALEWAY_1: "80", SCALEWAY_OLD: "true"}, {**ALL_V2, 80: "v1"}),
    ("Scaleway", {SCALEWAY_2: "80", SCALEWAY_OLD: "80,443"}, {80: "v2", 443: "v2"}),
    ("Scaleway", {SCALEWAY_OLD: "1"}, ALL_V2),
    ("Scaleway", {SCALEWAY_OLD: "0"}, OFF),
    ("Scaleway", {SCALEWAY_OLD: "80, 443"}, {80: "v2", 443: "v2"}),
    ("Cloud.dk", {CLOUD_DK: "true"}, ALL_V1),
    ("Cloud.dk", {CLOUD_DK: "false"}, OFF),
    ("Verda", {VERDA: "true"}, ALL_V2),
    ("Verda", {VERDA: "True"}, ALL_V2),
    ("Verda", {VERDA: "1"}, OFF),
    ("Cloud.dk", {CLOUD_DK: "T"}, OFF),
    ("TatNet", {TATNET: "v1"}, ALL_V1),
    ("TatNet", {TATNET: "true"}, OFF),
    ("hypervisor.io", {HYPERVISOR: "v2"}, ALL_V2),
    ("hypervisor.io", {HYPERVISOR: "false"}, OFF),
    ("Linode", {LINODE: "v1"}, ALL_V1),
    ("Linode", {LINODE: "V2"}, ALL_V2),
    ("Linode", {LINODE: "none"}, OFF),
    ("Linode", {LINODE_OLD: "v1"}, ALL_V1),
    ("Linode", {LINODE: "none", LINODE_OLD: "v1"}, OFF),
    ("Linode", {LINODE_443: '{"proxy-protocol": "v2", "protocol": "tcp"}'}, {443: "v2"}),
    ("Linode", {LINODE: "v1", LINODE_443: '{"proxy-protocol": "none"}'}, {22: "v1", 80: "v1"}),
    ("Linode", {LINODE: "v1", LINODE_443: '{"proxy-protocol": "v2"}'}, {**ALL_V1, 443: "v2"}),
    # The port's JSON may be about other things.
    ("Linode", {LINODE: "v1", LINODE_443: '{"tls-secret-name": "shop"}'}, ALL_V1),
    ("Vultr", {VULTR: "true"}, ALL_V1),
    ("Vultr", {VULTR: "false"}, OFF),
    *[("Vultr", {VULTR: value}, OFF) for value in ("yes", "on", "v2", "")],
    (CLASSIC, {AWS: "*"}, ALL_V1),
    # An in-tree Network Load Balancer does not read the key of the Classic one.
    (NLB, {AWS: "*", AWS_TYPE: "nlb"}, OFF),
    (NLB, {AWS_TYPE: "nlb", AWS_ATTRIBUTES: f"stickiness.enabled=true, {AWS_ON}"}, ALL_V2),
    (NLB, {AWS_TYPE: "nlb", AWS_ATTRIBUTES: AWS_OFF}, OFF),
    (NLB, {AWS_TYPE: "nlb", AWS_ATTRIBUTES: "stickiness.enabled=true"}, OFF),
    # What OpenShift writes for `protocol: PROXY` and `protocol: TCP` (cluster-ingress-operator, acca9642a:
    # pkg/operator/controller/ingress/load_balancer_service.go:109-113).
    (NLB, {AWS_TYPE: "nlb", AWS_ATTRIBUTES: f"preserve_client_ip.enabled=false,{AWS_ON}"}, ALL_V2),
    (NLB, {AWS_TYPE: "nlb", AWS_ATTRIBUTES: f"preserve_client_ip.enabled=true,{AWS_OFF}"}, OFF),
    # Only the load balancer controller reads the key with a port.
    (NLB, {AWS_TYPE: "nlb", f"{AWS_ATTRIBUTES}.443": AWS_ON, AWS_ATTRIBUTES: AWS_OFF}, OFF),
    (CONTROLLER, {AWS: "*", AWS_TYPE: "external"}, ALL_V2),
    (CONTROLLER, {AWS: "*", AWS_TYPE: "nlb-ip", AWS_GROUPS: "80"}, ALL_V2),
    (CONTROLLER, {AWS_TYPE: "external", AWS_GROUPS: "80, 443"}, {80: "v2", 443: "v2"}),
    (CONTROLLER, {AWS_TYPE: "external", AWS_GROUPS: "80", AWS_ATTRIBUTES: AWS_ON}, {80: "v2"}),
    (
        CONTROLLER,
        {AWS_TYPE: "external", f"{AWS_ATTRIBUTES}.443": AWS_OFF, AWS_ATTRIBUTES: AWS_ON},
        {22: "v2", 80: "v2"},
    ),
    ("Oracle (Load Balancer)", {OCI: "1"}, ALL_V1),
    ("Oracle (Load Balancer)", {OCI: "2"}, ALL_V2),
    ("Oracle (Load Balancer)", {OCI: "2", OCI_TYPE: "LB"}, ALL_V2),
    ("Oracle (Load Balancer)", {OCI: "2", OCI_TYPE: "other"}, ALL_V2),
    # Each type reads its own key alone.
    ("Oracle (Load Balancer)", {OCI_NLB: "true"}, OFF),
    (ORACLE_NLB, {OCI: "2", OCI_TYPE: "nlb"}, OFF),
    (ORACLE_NLB, {OCI_NLB: "True", OCI_TYPE: "nlb"}, ALL_V2),
    (ORACLE_NLB, {OCI_NLB: "true", OCI: "1", OCI_TYPE: "NLB"}, ALL_V2),
    *[(ORACLE_NLB, {OCI_NLB: value, OCI_TYPE: "nlb"}, OFF) for value in ("false", "1", "yes", "")],
    ("UpCloud", {UPCLOUD: UPCLOUD_HTTPS % "v1"}, {443: "v1"}),
    ("UpCloud", {UPCLOUD: UPCLOUD_HTTPS % "v2"}, {443: "v2"}),
    ("UpCloud", {UPCLOUD: UPCLOUD_HTTPS % ""}, OFF),
    ("UpCloud", {UPCLOUD: '{"plan": "production-small"}'}, OFF),
    ("UpCloud", {UPCLOUD: UPCLOUD_HTTPS.replace("https", "other") % "v2"}, OFF),
    ("STACKIT", {STACKIT: "true"}, ALL_V1),
    ("STACKIT", {STACKIT: "false", STACKIT_PORTS: "80"}, OFF),
    ("STACKIT", {STACKIT: "true", STACKIT_PORTS: "80,443"}, {80: "v1", 443: "v1"}),
    ("STACKIT", {STACKIT: "true", STACKIT_PORTS: ""}, OFF),
    ("STACKIT", {STACKIT_PORTS: "80,443"}, OFF),
    ("STACKIT", {YAWOL: "true"}, ALL_V1),
    ("STACKIT", {YAWOL: "true", YAWOL_PORTS: ""}, OFF),
    ("STACKIT", {YAWOL: "true", YAWOL_PORTS: " 443 "}, {443: "v1"}),
    # Either filter applies to either switch.
    ("STACKIT", {STACKIT: "true", YAWOL_PORTS: "443"}, {443: "v1"}),
    ("STACKIT", {YAWOL: "true", STACKIT_PORTS: "80"}, {80: "v1"}),
    ("STACKIT", {STACKIT: "1", YAWOL: "true", STACKIT_PORTS: "80", YAWOL_PORTS: "80"}, {80: "v1"}),
    # For yawol's key, text that is no boolean is false.
    *[("STACKIT", {YAWOL: value}, OFF) for value in ("yes", "on", "", "false")],
    ("STACKIT", {STACKIT: "false", YAWOL: "yes"}, OFF),
    ("Alibaba", {ALIBABA: "on"}, ALL_V2),
    ("Alibaba", {ALIBABA_OLD: "on"}, ALL_V2),
    ("Alibaba", {ALIBABA: "off", ALIBABA_OLD: "on"}, OFF),
    ("Alibaba", {ALIBABA: "true"}, OFF),
    ("Civo", {CIVO: "send-proxy"}, ALL_V1),
    ("Civo", {CIVO: "send-proxy-v2"}, ALL_V2),
    # Any text switches it on there, `false` too.
    ("Civo", {CIVO: "false"}, ALL_V1),
    ("Civo", {CIVO: ""}, OFF),
    ("cloudscale.ch", {CLOUDSCALE: "proxy"}, ALL_V1),
    ("cloudscale.ch", {CLOUDSCALE: "proxyv2"}, ALL_V2),
    ("cloudscale.ch", {CLOUDSCALE: "tcp"}, OFF),
    ("Outscale", {OUTSCALE: "*"}, ALL_V1),
    # The numbers are node ports; the Service's own mean nothing.
    ("Outscale", {OUTSCALE: "30443"}, {443: "v1"}),
    ("Outscale", {OUTSCALE: "30080, 30443"}, {80: "v1", 443: "v1"}),
    *[("Outscale", {OUTSCALE: value}, OFF) for value in ("443", "80,443", "http", "", ARABIC_30443)],
    ("Outscale", {OUTSCALE: "80,*"}, ALL_V1),
    ("CloudStack", {CLOUDSTACK: "true"}, ALL_V1),
    *[("CloudStack", {CLOUDSTACK: value}, OFF) for value in ("false", "True", "enabled", "1", "maybe", "")],
    ("IBM Cloud (VPC)", {IBM: "proxy-protocol"}, ALL_V1),
    ("IBM Cloud (VPC)", {IBM: "ipvs, proxy-protocol"}, ALL_V1),
    ("IBM Cloud (VPC)", {IBM: "nlb"}, OFF),
    (PLS, {AZURE: "true", AZURE_PLS: "true"}, ALL_V2),
    (PLS, {AZURE: " TRUE ", AZURE_PLS: "True"}, ALL_V2),
    (PLS, {AZURE: "true"}, OFF),
    (PLS, {AZURE: "true", AZURE_PLS: "1"}, OFF),
    *[(PLS, {AZURE: value, AZURE_PLS: "true"}, OFF) for value in ("false", "1", "yes")],
    ("Brightbox", {BRIGHTBOX: "v1"}, ALL_V1),
    ("Brightbox", {BRIGHTBOX: "v2-ssl"}, ALL_V2),
    ("Volcengine", {VOLCENGINE: "standard"}, ALL_V1),
    ("Volcengine", {VOLCENGINE: "off"}, OFF),
    ("Naver Cloud", {NAVER: "true"}, ALL_V1),
    ("Naver Cloud", {NAVER: "false"}, OFF),
    ("VNG Cloud", {VNG: "*"}, ALL_V1),
    ("VNG Cloud", {VNG: "http,https"}, {80: "v1", 443: "v1"}),
    ("VNG Cloud", {VNG: "https, smtp"}, {443: "v1"}),
    ("VNG Cloud", {VNG_GLOBAL: "https"}, {443: "v1"}),
    *[("VNG Cloud", {VNG: value}, OFF) for value in ("true", "443", "http3", "")],
    ("loxilb", {LOXILB: "yes"}, ALL_V2),
    *[("loxilb", {LOXILB: value}, OFF) for value in ("no", "true", "Yes", "")],
    ("Gcore", {GCORE: "true"}, ALL_V1),
    ("Gcore", {GCORE_OLD: "true"}, ALL_V1),
    ("Gcore", {GCORE: "false", GCORE_OLD: "true"}, OFF),
    # The example of NHN Cloud's guide, "Per-listener settings", with this key.
    ("NHN Cloud", {NHN: "true"}, ALL_V1),
    ("NHN Cloud", {NHN: "true", f"TCP-80.{NHN}": "false"}, {22: "v1", 443: "v1"}),
    ("NHN Cloud", {f"TCP-443.{NHN}": "false"}, OFF),
    ("Bizfly Cloud", {BIZFLY: "true"}, ALL_V1),
    ("Bizfly Cloud", {BIZFLY: "false"}, OFF),
    ("servers.com", {SERVERS: "True"}, ALL_V1),
    ("servers.com", {SERVERS: "TRUE"}, OFF),
    # github.com/kubermatic/kubelb, documentation of the annotation: "v2".
    ("KubeLB", {KUBELB: "v2"}, ALL_V2),
    ("KubeLB", {KUBELB: "v1"}, OFF),
    ("chisel-operator", {CHISEL: "true"}, ALL_V1),
    ("chisel-operator", {CHISEL: "True"}, OFF),
    # github.com/thalassa-cloud/cloud-provider-thalassa, docs/loadbalancer-annotations.md:560.
    ("Thalassa Cloud", {THALASSA: "true"}, ALL_V1),
    ("Thalassa Cloud", {THALASSA: "false"}, OFF),
    ("evroc", {EVROC: "true"}, ALL_V1),
    ("evroc", {EVROC: "1"}, OFF),
    ("Xelon", {XELON: "1"}, ALL_V1),
    ("Xelon", {XELON: "2"}, ALL_V2),
    *[("Xelon", {XELON: value}, OFF) for value in ("0", "")],
]

# Provider, annotations that its controller refuses or does not know, and what the reason says of them.
REFUSED: list[tuple[str, Mapping[str, str], str]] = [
    ("Scaleway", {SCALEWAY_1: "80,*"}, "'*' is not a port number"),
    ("Scaleway", {SCALEWAY_1: "80,"}, "'' is not a port number"),
    (
        "OpenStack",
        {OPENSTACK: "v1", "loadbalancer.openstack.org/x-forwarded-for": "true"},
        "rejects it next to",
    ),
    *[
        ("DigitalOcean", {DO: value}, f"{value!a} is neither true nor false")
        for value in ("yes", "on", "", " true", "tRUE", "v1")
    ],
    ("DigitalOcean", {DO: "true", DO_TYPE: "REGIONAL_NETWORK"}, "load balancer sends no PROXY header"),
    ("Hetzner", {HETZNER: "enabled"}, "'enabled' is neither true nor false"),
    ("OVH (IOLB)", {OVH: "v3"}, "'v3' is not one of v1, v2, v2-ssl, v2-ssl-cn"),
    ("Scaleway", {SCALEWAY_1: "https"}, "'https' is not a port number"),
    ("Scaleway", {SCALEWAY_1: "80-443"}, "'80-443' is not a port number"),
    ("Scaleway", {SCALEWAY_2: "0"}, "'0' is not a port number"),
    ("Scaleway", {SCALEWAY_2: "65536"}, "'65536' is not a port number"),
    ("Scaleway", {SCALEWAY_1: "80,443", SCALEWAY_2: "443"}, "port 443 is claimed by both"),
    ("Scaleway", {SCALEWAY_OLD: "*"}, "'*' is not a port number"),
    ("Linode", {LINODE: "true"}, "'true' is not one of v1, v2, none"),
    ("Linode", {LINODE_443: "v2"}, "not the expected JSON"),
    ("Linode", {LINODE_443: '{"proxy-protocol": 2}'}, "not the expected JSON"),
    ("Linode", {LINODE_443: '{"proxy-protocol": "v9"}'}, "'v9' is not one of v1, v2, none"),
    (CLASSIC, {AWS: "true"}, "'true' is not one of *"),
    (CONTROLLER, {AWS_TYPE: "external", AWS_GROUPS: "http"}, "'http' is not a port number"),
    (CONTROLLER, {AWS_TYPE: "external", AWS_GROUPS: "*"}, "'*' is not a port number"),
    ("Bizfly Cloud", {BIZFLY: "True"}, "'True' is not one of true, false"),
    ("Thalassa Cloud", {THALASSA: "on"}, "'on' is neither true nor false"),
    ("Xelon", {XELON: "v2"}, "'v2' is not one of 1, 2, 0"),
    (
        NLB,
        {AWS_TYPE: "nlb", AWS_ATTRIBUTES: "proxy_protocol_v2.enabled=on"},
        "'on' is neither true nor false",
    ),
    ("Oracle (Load Balancer)", {OCI: "v2"}, "'v2' is not one of 1, 2"),
    ("UpCloud", {UPCLOUD: "{"}, "not the expected JSON"),
    ("UpCloud", {UPCLOUD: UPCLOUD_HTTPS % "v3"}, "outbound_proxy_protocol 'v3' is not one of v1, v2"),
    ("UpCloud", {UPCLOUD: "[" * 100_000}, "not the expected JSON"),
    ("STACKIT", {STACKIT: "on"}, "'on' is neither true nor false"),
    ("STACKIT", {STACKIT: "true", STACKIT_PORTS: "http"}, "'http' is not a port number"),
    ("STACKIT", {STACKIT: "false", YAWOL: "true"}, f"{STACKIT} and {YAWOL} contradict each other"),
    (
        "STACKIT",
        {STACKIT: "true", STACKIT_PORTS: "80", YAWOL_PORTS: "443"},
        f"{STACKIT_PORTS} and {YAWOL_PORTS} contradict each other",
    ),
    ("cloudscale.ch", {CLOUDSCALE: "proxyv1"}, "'proxyv1' is not one of proxy, proxyv2, tcp"),
    ("Scaleway", {SCALEWAY_1: "\u0664\u0664\u0663"}, "is not a port number"),
    ("Brightbox", {BRIGHTBOX: "true"}, "'true' is not one of v1, v2, v2-ssl, v2-ssl-cn"),
    ("Volcengine", {VOLCENGINE: "on"}, "'on' is not one of standard, off"),
    ("Naver Cloud", {NAVER: "v1"}, "'v1' is neither true nor false"),
    ("Gcore", {GCORE: "v1"}, "'v1' is neither true nor false"),
]


def three_ports(annotations: Mapping[str, str]) -> Service:
    """A Service with ssh, http and https, and https by UDP as well, each with a node port; loxilb's if so."""
    found = service(
        ports=("22:ssh", "80:http", "443:https", "443:http3/UDP"),
        annotations=annotations,
        load_balancer_class="loxilb.io/loxilb" if LOXILB in annotations else None,
    )
    ports = (structs.replace(port, node_port=30_000 + port.port) for port in found.ports)
    return replace(found, ports=tuple(ports))


def detected(annotations: Mapping[str, str]) -> Identity:
    """What is decided where no node says of which cloud it is."""
    return identify(three_ports(annotations), LoadBalancerOptions(), "")


def _id(value: object) -> str:
    return value if isinstance(value, str) else ascii(value)[:80]


@pytest.mark.parametrize(("provider", "annotations", "ports"), READ, ids=_id)
def test_the_ports_that_send_proxy_are_those_that_the_annotations_say(
    provider: str, annotations: Mapping[str, str], ports: Mapping[int, str]
) -> None:
    found = detected(annotations)
    assert (found.versions, found.proxy) == (ports, bool(ports))
    if ports:
        assert found.code == "Annotated"
        assert found.reason.startswith("PROXY v")
        assert found.reason.endswith(f"({provider})")
        assert any(f"{key}=" in found.reason for key in annotations)
    else:
        assert (found.code, found.status) == ("NotProxy", "skipped")


@pytest.mark.parametrize(("provider", "annotations", "problem"), REFUSED, ids=_id)
def test_a_value_that_its_controller_refuses_is_an_error_and_nothing_else(
    provider: str, annotations: Mapping[str, str], problem: str
) -> None:
    found = detected(annotations)
    assert (found.versions, found.proxy) == ({}, False)
    assert (found.code, found.status) == ("BadAnnotation", "refused")
    assert problem in found.reason
    assert f"({provider})" in found.reason
    assert len(found.reason) < 400
    assert found.reason.isprintable()


def test_a_load_balancer_of_digitalocean_whose_type_is_not_said_may_send_no_header() -> None:
    (remark,) = detected({DO: "true"}).remarks
    assert "assumes a regional load balancer; a network load balancer, the default since" in remark
    assert "doctl compute load-balancer list" in remark
    assert detected({DO: "true", DO_TYPE: "REGIONAL"}).remarks == ()


@pytest.mark.parametrize("provider_id", ["hcloud://1", "gce://project/zone/node", ""])
def test_loxilb_is_believed_on_any_cloud_and_for_its_class_alone(provider_id: str) -> None:
    mine = three_ports({LOXILB: "yes"})
    assert identify(mine, LoadBalancerOptions(), provider_id).versions == ALL_V2
    assert not identify(replace(mine, load_balancer_class=None), LoadBalancerOptions(), provider_id).proxy


@pytest.mark.parametrize("of_class", ["service.k8s.aws/nlb", "eks.amazonaws.com/nlb"])
def test_a_load_balancer_class_shows_which_controller_reads_the_annotations(of_class: str) -> None:
    """AWS has three that share keys; EKS Auto Mode has a class of its own."""
    classed = service(annotations={AWS: "*", AWS_TYPE: "nlb"}, load_balancer_class=of_class)
    found = identify(classed, LoadBalancerOptions(), "")
    assert found.versions == {80: "v2", 443: "v2"}
    assert found.reason.endswith(f"({CONTROLLER})")


def test_every_row_is_tested_switched_on_and_switched_off_or_refused() -> None:
    """A new provider needs its cases here."""
    names = {provider.name for provider in PROVIDERS if provider.switches}
    assert names == {name for name, _, ports in READ if ports}
    assert names == {name for name, _, ports in READ if not ports} | {name for name, _, _ in REFUSED}


def test_no_key_is_in_two_rows_that_apply_to_one_service() -> None:
    """Else one annotation would contradict itself."""
    for kind in ("", "nlb", "external"):
        found = service(annotations={AWS_TYPE: kind} if kind else {})
        keys = [
            switch.key for provider in PROVIDERS if provider.applies(found) for switch in provider.switches
        ]
        assert len(keys) == len(set(keys))


def test_schemes_are_the_part_before_the_colon_and_slashes() -> None:
    assert all(scheme and set(scheme).isdisjoint(":/ ") for scheme in KNOWN_SCHEMES)
