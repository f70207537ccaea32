"""The table: the annotations that make each provider's load balancers send the PROXY header.

Every row cites its source, as `repository: file:line` of the provider's controller; docs/support.md says
which versions were compared, and when. If no source says which version is sent, the row has v1 and says so:
what accepts v2 accepts v1 as well (nginx, HAProxy, Envoy and Traefik tell them apart by the first bytes), so
this can't break anything.

Left out because they have no such switch: Exoscale, GKE, Huawei, Tencent, IONOS, Yandex, MetalLB, kube-vip,
ServiceLB.
"""

from nodeagent.model.objects import Service
from nodeagent.plan.detection.readers import (
    Provider,
    Sends,
    Switch,
    any_text,
    boolean,
    boolean_or_ports,
    boolean_or_service_ports,
    linode_port,
    linode_version,
    member,
    one_of_two_filtered,
    sent_on_all,
    star_or_node_ports,
    star_or_port_names,
    star_or_ports,
    target_group_attributes,
    upcloud_config,
    words,
)

_BETA = "service.beta.kubernetes.io"
_AWS = f"{_BETA}/aws-load-balancer"
_LINODE = f"{_BETA}/linode-loadbalancer"
_STACKIT_PORTS = (
    "lb.stackit.cloud/tcp-proxy-protocol-ports-filter",
    "yawol.stackit.cloud/tcpProxyProtocolPortsFilter",
)
_STACKIT = ("lb.stackit.cloud/tcp-proxy-protocol", "yawol.stackit.cloud/tcpProxyProtocol")
_SCALEWAY = f"{_BETA}/scw-loadbalancer"
_AZURE = f"{_BETA}/azure-pls-create"
_DO_TYPE = f"{_BETA}/do-loadbalancer-type"
_ON_REQUEST_OCI = 'oci.oraclecloud.com/ingress-ip-mode: "proxy"'

_AWS_ATTRIBUTES = (
    Switch(f"{_AWS}-target-group-attributes.{{port}}", target_group_attributes),
    Switch(f"{_AWS}-target-group-attributes", target_group_attributes),
)


def _aws_kind(service: Service) -> str:
    # cloud-provider-aws: pkg/providers/v1/aws.go:2462-2562; in-tree NLBs never read the key for Classic ELBs.
    # aws-load-balancer-controller: it serves the class, and the types `external` and `nlb-ip`.
    kind, of_class = service.annotations.get(f"{_AWS}-type", ""), service.load_balancer_class
    if kind in {"external", "nlb-ip"} if of_class is None else of_class == "service.k8s.aws/nlb":
        return "controller"
    return "network" if kind == "nlb" else "classic"


def _of_oci_network(service: Service) -> bool:
    return service.annotations.get("oci.oraclecloud.com/load-balancer-type", "").lower() == "nlb"


def _digitalocean(value: str, service: Service) -> Sends:
    sends = boolean("v1")(value, service)
    if service.annotations.get(_DO_TYPE) == "REGIONAL_NETWORK" and sends != sent_on_all("off"):
        raise ValueError(
            f"a REGIONAL_NETWORK load balancer sends no PROXY header: set {_DO_TYPE} to REGIONAL, or switch "
            "PROXY off in the ingress controller"
        )
    return sends


def _digitalocean_doubt(service: Service) -> str:
    if service.annotations.get(_DO_TYPE):
        return ""
    return (
        "a network load balancer, the default since digitalocean-cloud-controller-manager 0.1.61, sends "
        f"none; {_DO_TYPE} says which it is"
    )


PROVIDERS: tuple[Provider, ...] = (
    # digitalocean-cloud-controller-manager: cloud-controller-manager/do/lb_annotations.go:157,183 (keys),
    # loadbalancers.go:1678-1681 (ParseBool), 1737-1750 and cloud.go:162 (the type; since 0.1.61, without one,
    # REGIONAL_NETWORK, a pass-through that sends no header: DEFAULT_LB_TYPE, which is not visible, changes
    # that); v1: docs.digitalocean.com/glossary/proxy. No ipMode: its issue 811.
    Provider(
        "DigitalOcean",
        ("digitalocean",),
        (Switch(f"{_BETA}/do-loadbalancer-enable-proxy-protocol", _digitalocean, beside=(_DO_TYPE,)),),
        hostname=f'{_BETA}/do-loadbalancer-hostname: "lb.example.com"',
        doubt=_digitalocean_doubt,
    ),
    # hcloud-cloud-controller-manager: internal/annotation/load_balancer.go:86,150, name.go:58-71 (ParseBool);
    # hcloud/load_balancers.go:197-290. Its environment can switch PROXY on for all Services, without any
    # annotation: loadBalancers.services is for that. The version is not documented: v1.
    Provider(
        "Hetzner",
        ("hcloud", "hrobot"),
        (Switch("load-balancer.hetzner.cloud/uses-proxyprotocol", boolean("v1")),),
        hostname='load-balancer.hetzner.cloud/hostname: "lb.example.com"',
        ip_mode="hcloud-cloud-controller-manager 1.21.0 and later, where PROXY is on "
        "(by HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL: 1.29.1 and later)",
    ),
    # cloud-provider-openstack: pkg/openstack/loadbalancer.go:72,90,479-492 (compared as written: `True`
    # switches nothing on), 1638-1666; ipMode since 7a4290e8 (1.30.0), v2 since bcd8033ca (1.31.0). OVH,
    # Selectel, others.
    Provider(
        "OpenStack",
        ("openstack", "stackit"),
        (
            Switch(
                "loadbalancer.openstack.org/proxy-protocol",
                words({"true": "v1", "v1": "v1", "v2": "v2", "false": "off"}),
                otherwise_off=True,
            ),
        ),
        hostname='loadbalancer.openstack.org/hostname: "lb.example.com"',
        ip_mode="openstack-cloud-controller-manager 1.30.0 and later, where PROXY is on",
    ),
    # OVH's guide "migrate from Load Balancer for MKS (IOLB) to Public Cloud Load Balancer": the values.
    # Closed source.
    Provider(
        "OVH (IOLB)",
        ("openstack",),
        (
            Switch(
                f"{_BETA}/ovh-loadbalancer-proxy-protocol",
                words({"v1": "v1", "v2": "v2", "v2-ssl": "v2", "v2-ssl-cn": "v2"}),
            ),
        ),
    ),
    # scaleway-cloud-controller-manager: scaleway/loadbalancers_annotations.go:384-470 and
    # loadbalancers.go:1064 (of v1 and v2 a boolean, but `1` and `0` are ports; spaces are dropped; a port in
    # both is an error; the old key decides only for ports in neither, and is a boolean first); ipMode only
    # where all ports send PROXY: e08417d, 0.33.0. So a mixed Service stays short-circuited.
    Provider(
        "Scaleway",
        ("scaleway",),
        (
            Switch(f"{_SCALEWAY}-proxy-protocol-v1", boolean_or_ports("v1"), alone=True),
            Switch(f"{_SCALEWAY}-proxy-protocol-v2", boolean_or_ports("v2"), alone=True),
            Switch(f"{_SCALEWAY}-send-proxy-v2", boolean_or_service_ports),
        ),
        hostname=f'{_SCALEWAY}-use-hostname: "true"',
        ip_mode="scaleway-cloud-controller-manager 0.33.0 and later, where every port sends PROXY",
        ip_mode_on_request=f'{_SCALEWAY}-ip-mode: "Proxy"',
    ),
    # linode-cloud-controller-manager: cloud/annotations/annotations.go:7-8,40;
    # cloud/linode/loadbalancers.go:1391-1440 (the port's JSON, then the default, in any case);
    # loadbalancers_deprecated.go:4. No ipMode in its source; the status has address and host name in one
    # entry, which is short-circuited.
    Provider(
        "Linode",
        ("linode",),
        (
            Switch(f"{_LINODE}-port-{{port}}", linode_port),
            Switch(f"{_LINODE}-default-proxy-protocol", linode_version),
            Switch(f"{_LINODE}-proxy-protocol", linode_version),
        ),
        hostname=f'{_LINODE}-hostname-only-ingress: "true"',
    ),
    # vultr-cloud-controller-manager: vultr/loadbalancers.go, getProxyProtocol (ParseBool; an error means
    # false); docs/load-balancers.md:22,41. The version is not documented: v1.
    Provider(
        "Vultr",
        ("vultr",),
        (Switch(f"{_BETA}/vultr-loadbalancer-proxy-protocol", boolean("v1"), otherwise_off=True),),
        hostname=f'{_BETA}/vultr-loadbalancer-hostname: "lb.example.com"',
    ),
    # The status of AWS's load balancers holds only a host name.
    # cloud-provider-aws: pkg/providers/v1/aws.go:106-111, 2565-2572 (`*` or an error). Classic ELBs send only
    # v1 (Elastic Load Balancing, ProxyProtocolPolicyType).
    Provider(
        "AWS (Classic Load Balancer)",
        ("aws",),
        (Switch(f"{_AWS}-proxy-protocol", words({"*": "v1"})),),
        applies=lambda service: _aws_kind(service) == "classic",
    ),
    # cloud-provider-aws 1.34.0 and later: commit 73428cd2, docs/service_controller.md:46.
    Provider(
        "AWS (Network Load Balancer)",
        ("aws",),
        _AWS_ATTRIBUTES,
        applies=lambda service: _aws_kind(service) == "network",
    ),
    # aws-load-balancer-controller: pkg/service/model_build_target_group.go:327-373 (the order; the ports that
    # are not listed are switched off); docs/guide/service/annotations.md:301-336.
    Provider(
        "AWS (Load Balancer Controller)",
        ("aws",),
        (
            Switch(f"{_AWS}-proxy-protocol", words({"*": "v2"})),
            Switch(f"{_AWS}-proxy-protocol-per-target-group", star_or_ports("v2", others="off")),
            *_AWS_ATTRIBUTES,
        ),
        applies=lambda service: _aws_kind(service) == "controller",
    ),
    # oci-cloud-controller-manager: pkg/cloudprovider/providers/oci/load_balancer_spec.go:1073-1083 (Atoi),
    # 1536-1544 (the type, in any case, says which of the two keys is read); ipMode on request:
    # load_balancer.go:2020-2047, 9e50f1afb, 1.30.0.
    Provider(
        "Oracle (Load Balancer)",
        ("oci",),
        (
            Switch(
                f"{_BETA}/oci-load-balancer-connection-proxy-protocol-version", words({"1": "v1", "2": "v2"})
            ),
        ),
        ip_mode_on_request=_ON_REQUEST_OCI,
        applies=lambda service: not _of_oci_network(service),
    ),
    # The same, load_balancer_spec.go:255, 1179-1184 (`true` in any case; any other text is off).
    Provider(
        "Oracle (Network Load Balancer)",
        ("oci",),
        (
            Switch(
                "oci-network-load-balancer.oraclecloud.com/is-ppv2-enabled",
                words({"true": "v2", "false": "off"}, any_case=True),
                otherwise_off=True,
            ),
        ),
        ip_mode_on_request=_ON_REQUEST_OCI,
        applies=_of_oci_network,
    ),
    # UpCloud's cloud-controller-manager: internal/loadbalancer/utils.go:166,420, README.md:63-150. The
    # status holds only a host name.
    Provider("UpCloud", ("upcloud",), (Switch(f"{_BETA}/upcloud-load-balancer-config", upcloud_config),)),
    # cloud-provider-stackit: pkg/ccm/loadbalancer_spec.go:28-44, 422-476 (yawol's keys count as well, and
    # of these any text but a boolean is false; contradictions are errors; an empty filter lets no port
    # through). The version is not documented: v1.
    Provider(
        "STACKIT",
        ("stackit", "openstack"),
        tuple(
            Switch(key, one_of_two_filtered(_STACKIT, _STACKIT_PORTS), beside=(*_STACKIT, *_STACKIT_PORTS))
            for key in _STACKIT
        ),
        ip_mode_on_request='lb.stackit.cloud/ip-mode-proxy: "true"',
    ),
    # alibaba cloud-provider: pkg/controller/service/reconcile/annotation/annotations.go:98,150-171 (the older
    # key is read if the other is absent); clbv1/listeners.go:220-221 (`on`, v2). No ipMode in its source.
    Provider(
        "Alibaba",
        ("alicloud",),
        tuple(
            Switch(
                f"{_BETA}/{prefix}-loadbalancer-proxy-protocol",
                words({"on": "v2", "off": "off"}),
                otherwise_off=True,
            )
            for prefix in ("alibaba-cloud", "alicloud")
        ),
        hostname=f'{_BETA}/alibaba-cloud-loadbalancer-hostname: "lb.example.com"',
    ),
    # civo-cloud-controller-manager: cloud-controller-manager/civo/loadbalancer.go:31,250-266,480 (any text is
    # on).
    Provider(
        "Civo", ("civo",), (Switch("kubernetes.civo.com/loadbalancer-enable-proxy-protocol", any_text),)
    ),
    # cloudscale-cloud-controller-manager: pkg/cloudscale_ccm/loadbalancer.go:143, 190-197, 594-604.
    Provider(
        "cloudscale.ch",
        ("cloudscale",),
        (
            Switch(
                "k8s.cloudscale.ch/loadbalancer-pool-protocol",
                words({"proxy": "v1", "proxyv2": "v2", "tcp": "off"}),
            ),
        ),
        hostname='k8s.cloudscale.ch/loadbalancer-force-hostname: "lb.example.com"',
        ip_mode="cloudscale-cloud-controller-manager 1.1.0 and later, on Kubernetes 1.30 and later, for "
        "all load balancers",
    ),
    # outscale cloud-provider-osc: ccm/cloud/loadbalancer.go:98, 103-109 (`*` anywhere in the list), 277, 848,
    # 881 (the numbers are node ports, and others mean nothing), 304-306; docs/CHANGELOG.md. Its Nodes have
    # AWS's scheme. The version is not documented: v1.
    Provider(
        "Outscale",
        ("osc", "aws"),
        (Switch(f"{_BETA}/osc-load-balancer-proxy-protocol", star_or_node_ports),),
        hostname=f'{_BETA}/osc-load-balancer-ingress-address: "hostname"',
        ip_mode="cloud-provider-osc 1.31.2, 1.32.2, 1.33.2, 1.34.2 and later, where an address is published",
    ),
    # cloudstack-kubernetes-provider 1.1 and 1.2: cloudstack_loadbalancer.go:1140 (exactly `true`; all else is
    # off), protocol.go:85. v1: CloudStack's HAProxyConfigurator writes `send-proxy` for `tcp-proxy`.
    Provider(
        "CloudStack",
        ("external-cloudstack", "cloudstack"),
        (
            Switch(
                f"{_BETA}/cloudstack-load-balancer-proxy-protocol",
                words({"true": "v1", "false": "off"}),
                otherwise_off=True,
            ),
        ),
        hostname=f'{_BETA}/cloudstack-load-balancer-hostname: "lb.example.com"',
    ),
    # IBM's VPC provider: a list of features; "(we don't support v2)" in its source.
    Provider(
        "IBM Cloud (VPC)",
        ("ibm",),
        (
            Switch(
                "service.kubernetes.io/ibm-load-balancer-cloud-provider-enable-features",
                member("proxy-protocol"),
            ),
        ),
    ),
    # cloud-provider-azure: site/content/en/topics/pls-integration.md; pkg/provider/azure_utils.go:219 (`true`
    # in any case, with spaces around it; all else is off); v2: azure-docs,
    # articles/private-link/private-link-service-overview.md. Only connections through the Private Link have
    # the header; the controller then requires it of all clients, so the node's connections need it as well.
    Provider(
        "Azure (Private Link Service)",
        ("azure",),
        (
            Switch(
                f"{_BETA}/azure-pls-proxy-protocol",
                words({"true": "v2", "false": "off"}, any_case=True, trimmed=True),
                otherwise_off=True,
            ),
        ),
        applies=lambda service: service.annotations.get(_AZURE, "").strip().lower() == "true",
    ),
    # brightbox-cloud-controller-manager: annotations.go; the API takes the names of HAProxy's kinds of
    # header.
    Provider(
        "Brightbox",
        ("brightbox",),
        (
            Switch(
                f"{_BETA}/brightbox-load-balancer-listener-proxy-protocol",
                words({"v1": "v1", "v2": "v2", "v2-ssl": "v2", "v2-ssl-cn": "v2"}),
            ),
        ),
    ),
    # volcengine cloud-controller-manager: docs/usage.md. The version is not documented: v1.
    Provider(
        "Volcengine",
        ("volcengine",),
        (Switch(f"{_BETA}/volcengine-loadbalancer-proxy-protocol", words({"standard": "v1", "off": "off"})),),
    ),
    # guide.ncloud-docs.com/docs/en/nks-nks-1-8: `true`. The version is not documented: v1.
    Provider(
        "Naver Cloud",
        ("ncloud", "navercloud"),
        (Switch(f"{_BETA}/ncloud-load-balancer-proxy-protocol", boolean("v1")),),
    ),
    # vngcloud-load-balancer-controller: internal/usecase/service_uc/build_pool.go, buildPoolsAndListeners
    # (`*` or names of the Service's TCP ports; other words, `true` as well, mean nothing). The version is not
    # documented: v1.
    Provider(
        "VNG Cloud",
        ("vngcloud",),
        (
            Switch("vks.vngcloud.vn/enable-proxy-protocol", star_or_port_names),
            Switch("glb.vks.vngcloud.vn/enable-proxy-protocol", star_or_port_names),
        ),
    ),
    # kube-loxilb: pkg/agent/manager/loadbalancer/loadbalancer.go:86, 412-417 (its class alone), 550-557
    # (`yes`; all else is off); cmd/loxilb-agent/options.go:300 (the class, by default).
    Provider(
        "loxilb",
        (),
        (Switch("loxilb.io/useproxyprotov2", words({"yes": "v2", "no": "off"}), otherwise_off=True),),
        applies=lambda service: service.load_balancer_class == "loxilb.io/loxilb",
    ),
    # Gcore's documentation, "Use annotations for Load Balancers": a boolean; its controller is closed source.
    # The version is not documented: v1.
    Provider(
        "Gcore",
        ("openstack",),
        (
            Switch("loadbalancer.gcore.com/proxy-protocol", boolean("v1")),
            Switch("loadbalancer.gcorelabs.com/proxy-protocol", boolean("v1")),
        ),
    ),
)

_WITHOUT_PROXY = {"gce", "exoscale", "qcloud", "ionos"}
KNOWN_SCHEMES = frozenset(scheme for provider in PROVIDERS for scheme in provider.schemes) | _WITHOUT_PROXY
"""With clouds whose load balancers have no PROXY switch: a key found on their nodes is another cloud's."""
