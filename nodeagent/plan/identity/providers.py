"""The table of controllers: how each is known, what its annotations mean, and which fix it offers itself.

Every row cites its source, as `repository: file:line` of the controller; docs/support.md says which
versions were compared, and when. If no source says which version is sent, the row has None.

Left out because it has no such switch: IONOS.
"""

from nodeagent.model.objects import Service
from nodeagent.plan.identity import readers as read
from nodeagent.plan.identity.clouds import CLOUDS
from nodeagent.plan.identity.rows import Provider

_BETA = "service.beta.kubernetes.io"
_IBM = "service.kubernetes.io/ibm-load-balancer-cloud-provider"
_GKE = ("networking.gke.io", "cloud.google.com")
_MANAGED = f"{_BETA}/managed-loadbalancer"
_NAVER = f"{_BETA}/ncloud-load-balancer"
_NHN = "loadbalancer.nhncloud/listener-protocol"
_PRIVATE = "one with a Private Link Service (azure-pls-create)"


def _azure_kind(service: Service) -> str:
    wanted = service.annotations.get(f"{_BETA}/azure-pls-create", "")
    return _PRIVATE if wanted.strip().lower() == "true" else ""


def _gke_kind(service: Service) -> str:
    wanted = (service.annotations.get(f"{host}/load-balancer-type", "") for host in _GKE)
    internal = service.load_balancer_class == "networking.gke.io/l4-regional-internal"
    return "an internal load balancer" if internal or "Internal" in wanted else ""


PROVIDERS: tuple[Provider, ...] = (
    *CLOUDS,
    # civo-cloud-controller-manager: civo/loadbalancer.go:31,250-266,480 (any text is on).
    Provider(
        "Civo",
        ("civo",),
        {"kubernetes.civo.com/loadbalancer-enable-proxy-protocol": read.any_text},
        publishes_hostname=True,
    ),
    # cloudscale-cloud-controller-manager: pkg/cloudscale_ccm/loadbalancer.go:143, 190-197, 594-604.
    Provider(
        "cloudscale.ch",
        ("cloudscale",),
        {
            "k8s.cloudscale.ch/loadbalancer-pool-protocol": read.words(
                {"proxy": "v1", "proxyv2": "v2", "tcp": "off"}
            )
        },
        hostname='k8s.cloudscale.ch/loadbalancer-force-hostname: "lb.example.com"',
        ip_mode_on_request='k8s.cloudscale.ch/loadbalancer-ip-mode: "Proxy"',
        ip_mode="cloudscale-cloud-controller-manager 1.1.0 and later, for all load balancers",
        workload="daemonset/cloudscale-cloud-controller-manager",
    ),
    # outscale cloud-provider-osc: ccm/cloud/loadbalancer.go:98, 103-109 (`*` anywhere in the list), 277, 848,
    # 881 (numbers are node ports; others: nothing), 304-306; docs/CHANGELOG.md. Its Nodes have AWS's scheme.
    Provider(
        "Outscale",
        ("osc", "aws"),
        {f"{_BETA}/osc-load-balancer-proxy-protocol": read.star_or_node_ports},
        # loadbalancer.go: ListenerDefaults; docs/annotations.md (the ports, by default all).
        certificates={
            f"{_BETA}/osc-load-balancer-ssl-cert": read.tls_on({f"{_BETA}/osc-load-balancer-ssl-ports": "*"})
        },
        publishes_hostname=True,
        hostname=f'{_BETA}/osc-load-balancer-ingress-address: "hostname"',
        ip_mode_on_request=f'{_BETA}/osc-load-balancer-ingress-ipmode: "Proxy"',
        ip_mode="cloud-provider-osc 1.31.2, 1.32.2, 1.33.2, 1.34.2 and later, where an address is published",
    ),
    # cloudstack-kubernetes-provider 1.1 and 1.2: cloudstack_loadbalancer.go:1140 (exactly `true`; all else is
    # off), protocol.go:85. v1: CloudStack's HAProxyConfigurator writes `send-proxy` for `tcp-proxy`.
    Provider(
        "CloudStack",
        ("external-cloudstack", "cloudstack"),
        {
            f"{_BETA}/cloudstack-load-balancer-proxy-protocol": read.otherwise_off(
                read.words({"true": "v1", "false": "off"})
            )
        },
        hostname=f'{_BETA}/cloudstack-load-balancer-hostname: "lb.example.com"',
    ),
    # IBM's VPC provider: a list of features; "(we don't support v2)" in its source.
    Provider("IBM Cloud", ("ibm",), {f"{_IBM}-enable-features": read.feature}, publishes_hostname=True),
    # cloud-provider-azure: site/content/en/topics/pls-integration.md; pkg/provider/azure_utils.go:219 (`true`
    # in any case, with spaces around it; all else is off); v2: azure-docs,
    # articles/private-link/private-link-service-overview.md. Only connections through the Private Link have
    # the header; the controller then requires it of all clients, so the node's connections need it as well.
    Provider(
        "Azure (Private Link Service)",
        ("azure",),
        {
            f"{_BETA}/azure-pls-proxy-protocol": read.otherwise_off(
                read.words({"true": "v2", "false": "off"}, any_case=True, trimmed=True)
            )
        },
        kind=_PRIVATE,
        kind_of=_azure_kind,
    ),
    # The same: without a Private Link Service in front, Azure's load balancers pass packets through.
    Provider("Azure", ("azure",), kind_of=_azure_kind, sends_none=True),
    # GKE's documentation, "LoadBalancer Service parameters" (the classes; both kinds pass packets through).
    # A ServiceAttachment, which is not read, can add the header in front of an internal one ("Create an
    # internal load balancer across VPC networks").
    Provider("GKE", ("gce",), classes=("networking.gke.io/",), kind_of=_gke_kind, sends_none=True),
    # cloud-provider-huaweicloud: docs/usage-guide.md (TLS), huaweicloud.go (the scheme). Huawei Cloud's and
    # Open Telekom Cloud's CCE, closed source: "Configuring Passthrough Networking for a LoadBalancer
    # Service", "Configuring Advanced Load Balancing Functions Using Annotations". No annotation for PROXY is
    # known, and a listener's own switch for it is not visible here.
    Provider(
        "Huawei",
        ("huaweicloud",),
        certificates={
            "kubernetes.io/elb.protocol-port": read.tls_by_protocol("https", "tls"),
            "kubernetes.io/elb.default-tls-container-ref": read.tls_everywhere,
        },
        signs=("kubernetes.io/elb.",),
        detour='kubernetes.io/elb.pass-through: "true"',
    ),
    # TKE's documentation, "Service Extension Protocol" (the listeners); CLB's, 214/70455: those of TCP can
    # send the header, v2, by a switch in the console, which is not visible here. Closed source.
    Provider(
        "Tencent",
        ("qcloud",),
        certificates={"service.cloud.tencent.com/specify-protocol": read.tencent_tls},
        signs=("service.cloud.tencent.com/",),
    ),
    # exoscale-cloud-controller-manager: exoscale/loadbalancer.go; yandex-cloud-controller-manager:
    # pkg/cloudprovider/yandex/load_balancer.go. Both pass packets through.
    Provider("Exoscale", ("exoscale",), sends_none=True),
    Provider("Yandex Cloud", ("yandex",), sends_none=True),
    # brightbox-cloud-controller-manager: annotations.go; the API takes HAProxy's names of the header.
    Provider(
        "Brightbox",
        ("brightbox",),
        {f"{_BETA}/brightbox-load-balancer-listener-proxy-protocol": read.KIND_OF_HEADER},
        # The same: the domains of the certificate for the https listener.
        certificates={f"{_BETA}/brightbox-load-balancer-ssl-domains": read.tls_on({"": "443"})},
        publishes_hostname=True,
    ),
    # volcengine cloud-controller-manager: docs/usage.md.
    Provider(
        "Volcengine",
        ("volcengine",),
        {f"{_BETA}/volcengine-loadbalancer-proxy-protocol": read.words({"standard": None, "off": "off"})},
        classes=("volcengine.com/",),
    ),
    # guide.ncloud-docs.com/docs/en/nks-nks-1-8 (Classic) and k8s-k8suse-loadbalancer (VPC): `true`; TLS.
    Provider(
        "Naver Cloud",
        ("ncloud", "navercloud"),
        {f"{_NAVER}-proxy-protocol": read.boolean()},
        certificates={
            f"{_NAVER}-ssl-certificate-no": read.tls_on({f"{_NAVER}-tls-ports": ""}),
            f"{_NAVER}-ssl-cert": read.tls_on({f"{_NAVER}-ssl-ports": "*"}),
        },
    ),
    # vngcloud-load-balancer-controller: internal/usecase/service_uc/build_pool.go, buildPoolsAndListeners
    # (`*` or names of the Service's TCP ports; other words, `true` as well, mean nothing).
    Provider(
        "VNG Cloud",
        ("vngcloud",),
        {
            f"{prefix}vks.vngcloud.vn/enable-proxy-protocol": read.star_or_port_names
            for prefix in ("", "glb.")
        },
    ),
    # kube-loxilb: pkg/agent/manager/loadbalancer/loadbalancer.go:86, 412-417 (its class alone), 550-557
    # (`yes`; all else is off); cmd/loxilb-agent/options.go:300 (the class, by default).
    Provider(
        "loxilb",
        (),
        {"loxilb.io/useproxyprotov2": read.otherwise_off(read.words({"yes": "v2", "no": "off"}))},
        classes=("loxilb.io/",),
        kind="a Service of class loxilb.io/loxilb",
        kind_of=lambda service: f"a Service of class {service.load_balancer_class}",
        publishes_hostname=True,
    ),
    # Gcore's documentation, "Use annotations for Load Balancers": a boolean; its controller is closed source.
    Provider(
        "Gcore",
        ("openstack",),
        {f"loadbalancer.{name}.com/proxy-protocol": read.boolean() for name in ("gcore", "gcorelabs")},
    ),
    # NHN Cloud's user guide of NKS: "Listener proxy protocol", "Set the listener protocol", "Per-listener
    # settings" (the protocol and port before the key; else the key alone counts). Closed source.
    Provider(
        "NHN Cloud",
        ("openstack",),
        {
            f"{listener}loadbalancer.nhncloud/proxy-protocol": read.boolean()
            for listener in ("TCP-{port}.", "")
        },
        certificates=read.tls_where(f"TCP-{{port}}.{_NHN}", _NHN, lambda mode: mode == "TERMINATED_HTTPS"),
    ),
    # bizfly-cloud-controller-manager at 58ba5a1: cloud-controller-manager/bizfly/loadbalancer.go:69, 125-143
    # (`true` or `false`, or an error), 410-419 (the status holds the address as a nip.io name if asked).
    Provider(
        "Bizfly Cloud",
        ("bizflycloud",),
        {"kubernetes.bizflycloud.vn/enable-proxy-protocol": read.TRUE_OR_FALSE},
        hostname='kubernetes.bizflycloud.vn/enable-ingress-hostname: "true"',
    ),
    # serverscom-cloud-controller-manager at fb6c956: serverscom/loadbalancers.go:18, 230-235, 287-300.
    Provider(
        "servers.com",
        ("serverscom",),
        {
            "servers.com/proxy-protocol": read.otherwise_off(
                read.words({"true": None, "True": None, "false": "off"})
            )
        },
        hostname='servers.com/load-balancer-hostname: "lb.example.com"',
    ),
    # kubelb at 80d164b: internal/envoy/resource.go:174 (exactly `v2`; all else is off).
    Provider(
        "KubeLB",
        switches={"kubelb.k8c.io/proxy-protocol": read.otherwise_off(read.words({"v2": "v2"}))},
        classes=("kubelb",),  # cmd/ccm/main.go: use-loadbalancer-class,
    ),
    # robotlb at f827ab8: src/lb.rs, src/main.rs (no ipMode).
    Provider("robotlb", switches={"robotlb/lb-proxy-mode": read.TRUE_OR_FALSE}, classes=("robotlb",)),
    # chisel-operator at 38624a6: src/ops.rs:17, src/deployment.rs:81-86, src/daemon.rs:566-583 (no ipMode).
    Provider(
        "chisel-operator",
        switches={"chisel-operator.io/proxy-protocol": read.TRUE_ELSE_OFF},
        classes=("chisel-operator.io/",),
    ),
    # cloud-provider-thalassa at f4f03b3: pkg/provider/annotations.go:14, loadbalancer.go:84, 167, 534;
    # loadbalancer_features.go:15, 56 (ParseBool, or an error); docs/loadbalancer-annotations.md:28 (v1).
    Provider(
        "Thalassa Cloud",
        ("thalassacloud",),
        {"loadbalancer.k8s.thalassa.cloud/enable-proxy-protocol": read.boolean("v1")},
        ip_mode="cloud-provider-thalassa, for all load balancers",
    ),
    # evroc-ccm-driver: pkg/evroc/lb_validation.go, wantsProxyProtocol (exactly `true`; all else is off),
    # CHANGELOG.md (the older key), loadbalancer.go, toLBStatus (an address without ipMode).
    Provider(
        "evroc",
        ("evroc",),
        {f"{prefix}evroc.com/proxy-protocol": read.TRUE_ELSE_OFF for prefix in ("ccm.", "")},
    ),
    # xelon-cloud-controller-manager at bd69c46: internal/xelon/load_balancers.go:40-46, 417-425 (Atoi), 533.
    Provider(
        "Xelon",
        ("xelon",),
        {f"{_BETA}/xelon-load-balancer-cluster-proxy-protocol-version": read.NUMBER_OR_NONE},
        ip_mode="xelon-cloud-controller-manager, where PROXY is on",
    ),
    # clouddk-cloud-controller-manager at a67cef2: clouddkcp/load_balancers.go:42, 349-355, 563 (exactly
    # `true`), 430-440 (an address), util.go:28 (the scheme).
    Provider(
        "Cloud.dk",
        ("clouddk",),
        {"kubernetes.cloud.dk/load-balancer-enable-proxy-protocol": read.TRUE_ELSE_OFF},
    ),
    # cluster-api-provider-verda: internal/ccm, Frontends (`true` in any case), README.md (version 2).
    Provider("Verda", ("verda",), {"verda.cluster.x-k8s.io/proxy-protocol": read.V2_IF_TRUE}),
    # TatNet's cloud controller manager: loadbalancer.go, parseAnnotations (another value is ignored) and
    # statusFor (an address alone); ProviderName (the scheme).
    Provider(
        "TatNet",
        ("tatnet",),
        {"tatnet.ru/lb-proxy-protocol": read.otherwise_off(read.words({"v1": "v1", "v2": "v2"}))},
    ),
    # hypervisor.io's documentation, "Service Annotations" (`v1`, `v2` or a boolean; TLS by `ssl-mode`).
    Provider(
        "hypervisor.io",
        switches={
            f"{_MANAGED}-proxy-protocol": read.words(
                {"v1": "v1", "v2": "v2", "true": None, "false": "off"}, any_case=True
            )
        },
        certificates=read.tls_where(
            f"{_MANAGED}-port-{{port}}-ssl-mode", f"{_MANAGED}-ssl-mode", lambda ssl: ssl not in {"", "none"}
        ),
        switched_on="`v1`, `v2`, or `true`",
        sends="as named; v1 ²",
    ),
    # k8s-anexia: lbaas.anx.io/load-balancer-proxy-pass-hostname, "to prevent hair-pinning"; no switch.
    Provider(
        "Anexia", ("anexia",), hostname='lbaas.anx.io/load-balancer-proxy-pass-hostname: "lb.example.com"'
    ),
    # What announces addresses on a node sends no header. metallb: internal/k8s/controllers and
    # controller/service.go (the pool that it writes, and the keys of before 0.13).
    Provider(
        "MetalLB",
        classes=("metallb.",),
        written=("metallb.io/ip-allocated-from-pool", "metallb.universe.tf/ip-allocated-from-pool"),
        signs=("metallb.",),
        announces=True,
        sends_none=True,
    ),
    # kube-vip: pkg/kubevip/annotations.go; it writes vipHost to others' Services, too.
    Provider(
        "kube-vip",
        classes=("kube-vip.io/",),
        written=("kube-vip.io/loadbalancerIPs",),
        signs=("kube-vip.io/vipHost", "kube-vip.io/serviceInterface", "kube-vip.io/loadbalancerHostname"),
        announces=True,
        sends_none=True,
    ),
    # purelb: docs, "Annotations" (purelb.io/allocated-by is its own).
    Provider(
        "PureLB",
        classes=("purelb.io/",),
        written=("purelb.io/allocated-by",),
        signs=("purelb.io/",),
        announces=True,
        sends_none=True,
    ),
    # cilium: operator/pkg/lbipam; the classes are those of its announcers (bgp-control-plane, l2-announcer).
    Provider(
        "Cilium",
        classes=("io.cilium/",),
        signs=("lbipam.cilium.io/", "io.cilium/lb-ipam"),
        announces=True,
        sends_none=True,
    ),
    # openelb: api/v1alpha2, its annotations.
    Provider(
        "OpenELB",
        classes=("lb.kubesphere.io/", "openelb."),
        signs=("lb.kubesphere.io/", "eip.openelb.", "protocol.openelb.", "layer2.openelb."),
        announces=True,
        sends_none=True,
    ),
    # antrea: docs/service-loadbalancer.md.
    Provider("Antrea", signs=("service.antrea.io/external-ip-pool",), announces=True, sends_none=True),
    # Calico: docs, "LoadBalancer IP address management".
    Provider(
        "Calico",
        classes=("calico",),
        signs=(
            "projectcalico.org/loadBalancerIPs",
            "projectcalico.org/ipv4pools",
            "projectcalico.org/ipv6pools",
        ),
        announces=True,
        sends_none=True,
    ),
    # tailscale: cmd/k8s-operator/svc.go (its class); the address is one of the tailnet, without the header.
    Provider("Tailscale", classes=("tailscale",), sends_none=True),
)

_WITHOUT_SWITCH = {"ionos", "vsphere", "nutanix", "proxmox", "harvester"}
KNOWN_SCHEMES = frozenset(scheme for provider in PROVIDERS for scheme in provider.schemes) | _WITHOUT_SWITCH
"""With platforms whose load balancers have no PROXY switch: a key found on their nodes is another cloud's."""
