"""The table: the annotations that make each provider's load balancers send the PROXY header.

Every row cites its source, as `repository: file:line` of the provider's controller; docs/support.md says
which versions were compared, and when. If no source says which version is sent, the row has `UNDOCUMENTED`.

Left out because they have no such switch: Exoscale, Huawei, Tencent, IONOS, Yandex, MetalLB, kube-vip,
ServiceLB. GKE's is in another object, a ServiceAttachment, and is for its Private Service Connect alone.
"""

from nodeagent.plan.detection.readers import (
    DIGITALOCEAN_TYPE,
    KIND_OF_HEADER,
    NUMBER,
    NUMBER_OR_NONE,
    TRUE_OR_FALSE,
    UNDOCUMENTED,
    Provider,
    Switch,
    alibaba,
    any_text,
    aws_kind,
    boolean,
    boolean_or_ports,
    boolean_or_service_ports,
    digitalocean,
    digitalocean_doubt,
    linode_port,
    linode_version,
    listed_ports,
    member,
    of_oci_network,
    one_of_two_filtered,
    star_or_node_ports,
    star_or_port_names,
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
_IBM = "service.kubernetes.io/ibm-load-balancer-cloud-provider"
_AZURE = f"{_BETA}/azure-pls-create"
_ON_REQUEST_OCI = 'oci.oraclecloud.com/ingress-ip-mode: "proxy"'

_AWS_ATTRIBUTES = Switch(f"{_AWS}-target-group-attributes", target_group_attributes)

PROVIDERS: tuple[Provider, ...] = (
    # digitalocean-cloud-controller-manager: cloud-controller-manager/do/lb_annotations.go:157,183 (keys),
    # loadbalancers.go:1678-1681 (ParseBool), 1737-1750 and cloud.go:162 (the type; since 0.1.61, without one,
    # REGIONAL_NETWORK, a pass-through that sends no header: DEFAULT_LB_TYPE, which is not visible, changes
    # that); v1: docs.digitalocean.com/glossary/proxy. No ipMode: its issue 811.
    Provider(
        "DigitalOcean",
        ("digitalocean",),
        (
            Switch(
                f"{_BETA}/do-loadbalancer-enable-proxy-protocol", digitalocean, beside=(DIGITALOCEAN_TYPE,)
            ),
        ),
        hostname=f'{_BETA}/do-loadbalancer-hostname: "lb.example.com"',
        doubt=digitalocean_doubt,
    ),
    # hcloud-cloud-controller-manager: internal/annotation/load_balancer.go:86,150, name.go:58-71 (ParseBool);
    # hcloud/load_balancers.go:197-290. Its environment can switch PROXY on for all Services, without any
    # annotation: loadBalancers.services is for that.
    Provider(
        "Hetzner",
        ("hcloud", "hrobot"),
        (Switch("load-balancer.hetzner.cloud/uses-proxyprotocol", boolean(UNDOCUMENTED)),),
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
    # Closed source; deprecated from Kubernetes 1.32.
    Provider(
        "OVH (IOLB)",
        ("openstack",),
        (Switch(f"{_BETA}/ovh-loadbalancer-proxy-protocol", KIND_OF_HEADER),),
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
    # false); docs/load-balancers.md:22,41.
    Provider(
        "Vultr",
        ("vultr",),
        (Switch(f"{_BETA}/vultr-loadbalancer-proxy-protocol", boolean(UNDOCUMENTED), otherwise_off=True),),
        hostname=f'{_BETA}/vultr-loadbalancer-hostname: "lb.example.com"',
    ),
    # The status of AWS's load balancers holds only a host name.
    # cloud-provider-aws: pkg/providers/v1/aws.go:106-111, 2565-2572 (`*` or an error). Classic ELBs send only
    # v1 (Elastic Load Balancing, ProxyProtocolPolicyType).
    Provider(
        "AWS (Classic Load Balancer)",
        ("aws",),
        (Switch(f"{_AWS}-proxy-protocol", words({"*": "v1"})),),
        applies=lambda service: aws_kind(service) == "classic",
    ),
    # cloud-provider-aws 1.34.0 and later: commit 73428cd2, docs/service_controller.md:46.
    Provider(
        "AWS (Network Load Balancer)",
        ("aws",),
        (_AWS_ATTRIBUTES,),
        applies=lambda service: aws_kind(service) == "network",
    ),
    # aws-load-balancer-controller: pkg/service/model_build_target_group.go:327-373 (the order; the ports that
    # are not listed are switched off); docs/guide/service/annotations.md:301-336.
    Provider(
        "AWS (Load Balancer Controller)",
        ("aws",),
        (
            Switch(f"{_AWS}-proxy-protocol", words({"*": "v2"})),
            Switch(f"{_AWS}-proxy-protocol-per-target-group", listed_ports("v2")),
            Switch(f"{_AWS}-target-group-attributes.{{port}}", target_group_attributes),
            _AWS_ATTRIBUTES,
        ),
        applies=lambda service: aws_kind(service) == "controller",
    ),
    # oci-cloud-controller-manager: pkg/cloudprovider/providers/oci/load_balancer_spec.go:1073-1083 (Atoi),
    # 1536-1544 (the type, in any case, says which of the two keys is read); ipMode on request:
    # load_balancer.go:2020-2047, 9e50f1afb, 1.30.0.
    Provider(
        "Oracle (Load Balancer)",
        ("oci",),
        (Switch(f"{_BETA}/oci-load-balancer-connection-proxy-protocol-version", NUMBER),),
        ip_mode_on_request=_ON_REQUEST_OCI,
        applies=lambda service: not of_oci_network(service),
    ),
    # The same, load_balancer_spec.go:255, 1179-1184 (`true` in any case).
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
        applies=of_oci_network,
    ),
    # UpCloud's cloud-controller-manager: internal/loadbalancer/utils.go:166,420, README.md:63-150. The
    # status holds only a host name.
    Provider("UpCloud", ("upcloud",), (Switch(f"{_BETA}/upcloud-load-balancer-config", upcloud_config),)),
    # cloud-provider-stackit: pkg/ccm/loadbalancer_spec.go:28-44, 422-476 (yawol's keys count as well, and
    # of these any text but a boolean is false; contradictions are errors; an empty filter lets no port
    # through).
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
    # key is read if the other is absent); clbv1/listeners.go:220-221, nlbv2/listeners.go:205-206 (`on`, for
    # the NLB in any case; v2). No ipMode in its source; the NLB's status holds only a host name.
    Provider(
        "Alibaba",
        ("alicloud",),
        tuple(
            Switch(f"{_BETA}/{prefix}-loadbalancer-proxy-protocol", alibaba, otherwise_off=True)
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
    # AWS's scheme.
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
        (Switch(f"{_BETA}/cloudstack-load-balancer-proxy-protocol", TRUE_OR_FALSE, otherwise_off=True),),
        hostname=f'{_BETA}/cloudstack-load-balancer-hostname: "lb.example.com"',
    ),
    # IBM's VPC provider: a list of features; "(we don't support v2)" in its source.
    Provider("IBM Cloud (VPC)", ("ibm",), (Switch(f"{_IBM}-enable-features", member("proxy-protocol")),)),
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
        (Switch(f"{_BETA}/brightbox-load-balancer-listener-proxy-protocol", KIND_OF_HEADER),),
    ),
    # volcengine cloud-controller-manager: docs/usage.md.
    Provider(
        "Volcengine",
        ("volcengine",),
        (
            Switch(
                f"{_BETA}/volcengine-loadbalancer-proxy-protocol",
                words({"standard": UNDOCUMENTED, "off": "off"}),
            ),
        ),
    ),
    # guide.ncloud-docs.com/docs/en/nks-nks-1-8: `true`.
    Provider(
        "Naver Cloud",
        ("ncloud", "navercloud"),
        (Switch(f"{_BETA}/ncloud-load-balancer-proxy-protocol", boolean(UNDOCUMENTED)),),
    ),
    # vngcloud-load-balancer-controller: internal/usecase/service_uc/build_pool.go, buildPoolsAndListeners
    # (`*` or names of the Service's TCP ports; other words, `true` as well, mean nothing).
    Provider(
        "VNG Cloud",
        ("vngcloud",),
        tuple(
            Switch(f"{prefix}vks.vngcloud.vn/enable-proxy-protocol", star_or_port_names)
            for prefix in ("", "glb.")
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
    Provider(
        "Gcore",
        ("openstack",),
        tuple(
            Switch(f"loadbalancer.{domain}/proxy-protocol", boolean(UNDOCUMENTED))
            for domain in ("gcore.com", "gcorelabs.com")
        ),
    ),
    # NHN Cloud's user guide of NKS: "Listener proxy protocol", "Per-listener settings" (the protocol and port
    # before the key; else the key alone counts). Closed source.
    Provider(
        "NHN Cloud",
        ("openstack",),
        tuple(
            Switch(f"{listener}loadbalancer.nhncloud/proxy-protocol", boolean(UNDOCUMENTED))
            for listener in ("TCP-{port}.", "")
        ),
    ),
    # bizfly-cloud-controller-manager at 58ba5a1: cloud-controller-manager/bizfly/loadbalancer.go:69, 125-143
    # (`true` or `false`, or an error), 410-419 (the status holds the address as a nip.io name if asked).
    Provider(
        "Bizfly Cloud",
        ("bizflycloud",),
        (Switch("kubernetes.bizflycloud.vn/enable-proxy-protocol", TRUE_OR_FALSE),),
        hostname='kubernetes.bizflycloud.vn/enable-ingress-hostname: "true"',
    ),
    # serverscom-cloud-controller-manager at fb6c956: serverscom/loadbalancers.go:18, 230-235, 287-300.
    Provider(
        "servers.com",
        ("serverscom",),
        (
            Switch(
                "servers.com/proxy-protocol",
                words({"true": UNDOCUMENTED, "True": UNDOCUMENTED, "false": "off"}),
                otherwise_off=True,
            ),
        ),
        hostname='servers.com/load-balancer-hostname: "lb.example.com"',
    ),
    # kubelb at 80d164b: internal/envoy/resource.go:174 (exactly `v2`; all else is off).
    Provider(
        "KubeLB", (), (Switch("kubelb.k8c.io/proxy-protocol", words({"v2": "v2"}), otherwise_off=True),)
    ),
    # chisel-operator at 38624a6: src/ops.rs:17, src/deployment.rs:81-86, src/daemon.rs:566-583 (no ipMode).
    Provider(
        "chisel-operator",
        (),
        (Switch("chisel-operator.io/proxy-protocol", TRUE_OR_FALSE, otherwise_off=True),),
    ),
    # cloud-provider-thalassa at f4f03b3: pkg/provider/annotations.go:14, loadbalancer.go:84, 167, 534;
    # loadbalancer_features.go:15, 56 (ParseBool, or an error); docs/loadbalancer-annotations.md:28 (v1).
    Provider(
        "Thalassa Cloud",
        ("thalassacloud",),
        (Switch("loadbalancer.k8s.thalassa.cloud/enable-proxy-protocol", boolean("v1")),),
        ip_mode="cloud-provider-thalassa, for all load balancers",
    ),
    # evroc-ccm-driver: pkg/evroc/lb_validation.go, wantsProxyProtocol (exactly `true`; all else is off),
    # CHANGELOG.md (the older key), loadbalancer.go, toLBStatus (an address without ipMode).
    Provider(
        "evroc",
        ("evroc",),
        tuple(
            Switch(f"{prefix}evroc.com/proxy-protocol", TRUE_OR_FALSE, otherwise_off=True)
            for prefix in ("ccm.", "")
        ),
    ),
    # xelon-cloud-controller-manager at bd69c46: internal/xelon/load_balancers.go:40-46, 417-425 (Atoi; empty
    # is off), 533-551.
    Provider(
        "Xelon",
        ("xelon",),
        (Switch(f"{_BETA}/xelon-load-balancer-cluster-proxy-protocol-version", NUMBER_OR_NONE),),
        ip_mode="xelon-cloud-controller-manager, where PROXY is on",
    ),
)

_WITHOUT_PROXY = {"gce", "exoscale", "qcloud", "ionos"}
KNOWN_SCHEMES = frozenset(scheme for provider in PROVIDERS for scheme in provider.schemes) | _WITHOUT_PROXY
"""With clouds whose load balancers have no PROXY switch: a key found on their nodes is another cloud's."""
