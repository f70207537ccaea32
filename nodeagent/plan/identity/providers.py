"""The table of controllers: how each is known, what its annotations mean, and which fix it offers itself.

Every row cites its source, as `repository: file:line` of the controller; docs/support.md says which
versions were compared, and when. If no source says which version is sent, the row has `UNDOCUMENTED`.

Left out because they have no such switch: Exoscale, Huawei, Tencent, IONOS, Yandex. GKE's is in another
object, a ServiceAttachment, and is for its Private Service Connect alone.
"""

from nodeagent.plan.identity.readers import (
    AWS_CLASSIC,
    AWS_CONTROLLER,
    AWS_NETWORK,
    AZURE_PRIVATE,
    DIGITALOCEAN_TYPE,
    KIND_OF_HEADER,
    NUMBER,
    NUMBER_OR_NONE,
    OCI_LOAD_BALANCER,
    OCI_NETWORK,
    OVH_IOLB,
    TRUE_OR_FALSE,
    UNDOCUMENTED,
    alibaba,
    any_text,
    aws_kind,
    azure_kind,
    boolean,
    boolean_or_ports,
    boolean_or_service_ports,
    digitalocean,
    digitalocean_doubt,
    hypervisor_tls,
    linode_port,
    linode_tls,
    linode_version,
    listed_ports,
    member,
    oci_kind,
    one_of_two_filtered,
    openstack,
    ovh_kind,
    star_or_node_ports,
    star_or_port_names,
    target_group_attributes,
    tls_by_port,
    tls_by_protocol,
    tls_everywhere,
    tls_on,
    tls_where,
    upcloud_config,
    upcloud_tls,
    words,
)
from nodeagent.plan.identity.rows import Certificate, Provider, Switch

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
_ON_REQUEST_OCI = 'oci.oraclecloud.com/ingress-ip-mode: "proxy"'
_HCLOUD = "load-balancer.hetzner.cloud"
# cloud-provider-aws: pkg/providers/v1/aws.go (ssl-cert, and ssl-ports, by default all); the same keys in
# aws-load-balancer-controller: pkg/service/model_build_listener.go.
_AWS_CERTIFICATE = (Certificate(f"{_AWS}-ssl-cert", tls_on(f"{_AWS}-ssl-ports", "*")),)

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
        # lb_annotations.go: tls-ports and http2-ports; with a certificate, the first is 443 by default.
        certificates=tuple(
            Certificate(
                f"{_BETA}/do-loadbalancer-certificate-{end}",
                tls_on(f"{_BETA}/do-loadbalancer-{key}", default, f"{_BETA}/do-loadbalancer-tls-passthrough"),
            )
            for end in ("id", "name")
            for key, default in (("tls-ports", "443"), ("http2-ports", ""))
        ),
        hostname=f'{_BETA}/do-loadbalancer-hostname: "lb.example.com"',
        doubt=digitalocean_doubt,
        switched_on="`true` ¹; not for `do-loadbalancer-type: REGIONAL_NETWORK`, which sends none and"
        " is the default since controller 0.1.61: without a type, a note says so",
        sends="v1",
    ),
    # hcloud-cloud-controller-manager: internal/annotation/load_balancer.go:86,150, name.go:58-71 (ParseBool);
    # hcloud/load_balancers.go:197-290. Its environment can switch PROXY on for all Services, without any
    # annotation: loadBalancers.services is for that.
    Provider(
        "Hetzner",
        ("hcloud", "hrobot"),
        (Switch("load-balancer.hetzner.cloud/uses-proxyprotocol", boolean(UNDOCUMENTED)),),
        # load_balancer.go: certificates count with the protocol `https` alone, which holds for all ports.
        certificates=(Certificate(f"{_HCLOUD}/protocol", tls_where("https")),),
        hostname=f'{_HCLOUD}/hostname: "lb.example.com"',
        ip_mode="hcloud-cloud-controller-manager 1.21.0 and later, where PROXY is on "
        "(by HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL: 1.29.1 and later)",
        workload="deployment/hcloud-cloud-controller-manager",
        switched_on="`true` ¹",
        sends="v1 ²",
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
                openstack,
                otherwise_off=True,
                beside=("loadbalancer.openstack.org/x-forwarded-for",),
            ),
        ),
        # loadbalancer.go, getListenerProtocol: TERMINATED_HTTPS on every port.
        certificates=(Certificate("loadbalancer.openstack.org/default-tls-container-ref", tls_everywhere),),
        hostname='loadbalancer.openstack.org/hostname: "lb.example.com"',
        ip_mode="openstack-cloud-controller-manager 1.30.0 and later, where PROXY is on",
        workload="daemonset/openstack-cloud-controller-manager",
        switched_on="exactly `true`, `v1` or `v2`; `True` is off (also OVH's Octavia, Selectel)",
        sends="v1, v1, v2",
    ),
    # OVH's guide "migrate from Load Balancer for MKS (IOLB) to Public Cloud Load Balancer": the values.
    # Closed source; deprecated from Kubernetes 1.32.
    Provider(
        "OVH (IOLB)",
        ("openstack",),
        (Switch(f"{_BETA}/ovh-loadbalancer-proxy-protocol", KIND_OF_HEADER),),
        kind=OVH_IOLB,
        kind_of=ovh_kind,
        switched_on="`v1`, `v2`, `v2-ssl`, `v2-ssl-cn`",
        sends="as named",
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
        certificates=(Certificate(f"{_SCALEWAY}-certificate-ids", tls_by_port),),
        hostname=f'{_SCALEWAY}-use-hostname: "true"',
        ip_mode="scaleway-cloud-controller-manager 0.33.0 and later, where every port sends PROXY",
        ip_mode_on_request=f'{_SCALEWAY}-ip-mode: "Proxy"',
        switched_on="`true` ¹, `*`, or ports: `80,443` (`1` is a port); the last key, only for ports "
        "in neither of the others: `true` ¹ or ports",
        sends="as named",
    ),
    # linode-cloud-controller-manager at b9aa9012: cloud/annotations/annotations.go:7-8; cloud/linode/
    # loadbalancers_helpers.go:24-69 (the port's JSON, then the default, in any case), loadbalancers.go:108,
    # 981, 1352 (the certificate); loadbalancers_deprecated.go:4. No ipMode in its source; the status has
    # address and host name in one entry, which is short-circuited.
    Provider(
        "Linode",
        ("linode",),
        (
            Switch(f"{_LINODE}-port-{{port}}", linode_port),
            Switch(f"{_LINODE}-default-proxy-protocol", linode_version),
            Switch(f"{_LINODE}-proxy-protocol", linode_version),
        ),
        certificates=(Certificate(f"{_LINODE}-port-{{port}}", linode_tls),),
        hostname=f'{_LINODE}-hostname-only-ingress: "true"',
        switched_on="`v1`, `v2` in any case",
        sends="as named",
    ),
    # vultr-cloud-controller-manager: vultr/loadbalancers.go, getProxyProtocol (ParseBool; an error means
    # false); docs/load-balancers.md:22,41.
    Provider(
        "Vultr",
        ("vultr",),
        (Switch(f"{_BETA}/vultr-loadbalancer-proxy-protocol", boolean(UNDOCUMENTED), otherwise_off=True),),
        # vultr/loadbalancers.go:754-772 (either secret), 1061-1112 (https-ports, or all by the protocol).
        certificates=(
            *(
                Certificate(
                    f"{_BETA}/vultr-loadbalancer-{key}",
                    tls_on(
                        f"{_BETA}/vultr-loadbalancer-https-ports",
                        "",
                        f"{_BETA}/vultr-loadbalancer-ssl-pass-through",
                    ),
                )
                for key in ("ssl", "auto-ssl")
            ),
            Certificate(f"{_BETA}/vultr-loadbalancer-protocol", tls_where("https")),
        ),
        hostname=f'{_BETA}/vultr-loadbalancer-hostname: "lb.example.com"',
        switched_on="`true` ¹; anything else is off",
        sends="v1 ²",
    ),
    # The status of AWS's load balancers holds only a host name.
    # cloud-provider-aws: pkg/providers/v1/aws.go:106-111, 2565-2572 (`*` or an error). Classic ELBs send only
    # v1 (Elastic Load Balancing, ProxyProtocolPolicyType).
    Provider(
        "AWS (Classic Load Balancer)",
        ("aws",),
        (Switch(f"{_AWS}-proxy-protocol", words({"*": "v1", "": "off"})),),
        certificates=_AWS_CERTIFICATE,
        kind=AWS_CLASSIC,
        kind_of=aws_kind,
        publishes_hostname=True,
        switched_on="`*`",
        sends="v1",
    ),
    # cloud-provider-aws 1.34.0 and later: commit 73428cd2, docs/service_controller.md:46.
    Provider(
        "AWS (Network Load Balancer)",
        ("aws",),
        (_AWS_ATTRIBUTES,),
        certificates=_AWS_CERTIFICATE,
        kind=AWS_NETWORK,
        kind_of=aws_kind,
        publishes_hostname=True,
        switched_on="`proxy_protocol_v2.enabled=true` among them",
        sends="v2",
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
        certificates=_AWS_CERTIFICATE,
        classes=("service.k8s.aws/", "eks.amazonaws.com/"),
        kind=AWS_CONTROLLER,
        kind_of=aws_kind,
        publishes_hostname=True,
        switched_on="`*`; ports: `80,443`",
        sends="v2",
    ),
    # oci-cloud-controller-manager: pkg/cloudprovider/providers/oci/load_balancer_spec.go:1073-1083 (Atoi),
    # 1536-1544 (the type, in any case, says which of the two keys is read); ipMode on request:
    # load_balancer.go:2020-2047, 9e50f1afb, 1.30.0.
    Provider(
        "Oracle (Load Balancer)",
        ("oci",),
        (Switch(f"{_BETA}/oci-load-balancer-connection-proxy-protocol-version", NUMBER),),
        # load_balancer_spec.go:320 (the list of ports alone decides), load_balancer_util.go:747.
        certificates=(
            Certificate(
                f"{_BETA}/oci-load-balancer-ssl-ports", tls_on(f"{_BETA}/oci-load-balancer-ssl-ports", "")
            ),
        ),
        kind=OCI_LOAD_BALANCER,
        kind_of=oci_kind,
        ip_mode_on_request=_ON_REQUEST_OCI,
        switched_on="`1`, `2`, unless `oci.oraclecloud.com/load-balancer-type` is `nlb`",
        sends="as named",
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
        kind=OCI_NETWORK,
        kind_of=oci_kind,
        ip_mode_on_request=_ON_REQUEST_OCI,
        switched_on="`true` in any case, with `oci.oraclecloud.com/load-balancer-type: nlb`",
        sends="v2",
    ),
    # UpCloud's cloud-controller-manager: internal/loadbalancer/utils.go:166,420, README.md:63-150. The
    # status holds only a host name.
    Provider(
        "UpCloud",
        ("upcloud",),
        (Switch(f"{_BETA}/upcloud-load-balancer-config", upcloud_config),),
        certificates=(Certificate(f"{_BETA}/upcloud-load-balancer-config", upcloud_tls),),
        publishes_hostname=True,
        switched_on="JSON: `backends[].properties.outbound_proxy_protocol`, by the ports' names",
        sends="as named",
    ),
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
        switched_on="`true` ¹; ports: `80,443`",
        sends="v1 ²",
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
        # annotations.go: protocol-port, as `https:443,http:80`; of the NLB `tcpssl:443`.
        certificates=tuple(
            Certificate(f"{_BETA}/{prefix}-loadbalancer-protocol-port", tls_by_protocol("https", "tcpssl"))
            for prefix in ("alibaba-cloud", "alicloud")
        ),
        classes=("alibabacloud.com/",),
        hostname=f'{_BETA}/alibaba-cloud-loadbalancer-hostname: "lb.example.com"',
        switched_on="`on`; for `loadBalancerClass: alibabacloud.com/nlb` in any case",
        sends="v2",
    ),
    # civo-cloud-controller-manager: cloud-controller-manager/civo/loadbalancer.go:31,250-266,480 (any text is
    # on).
    Provider(
        "Civo",
        ("civo",),
        (Switch("kubernetes.civo.com/loadbalancer-enable-proxy-protocol", any_text),),
        publishes_hostname=True,
        switched_on="any text; `send-proxy`, `send-proxy-v2`",
        sends="v1, v2",
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
        workload="daemonset/cloudscale-cloud-controller-manager",
        switched_on="`proxy`, `proxyv2`",
        sends="v1, v2",
    ),
    # outscale cloud-provider-osc: ccm/cloud/loadbalancer.go:98, 103-109 (`*` anywhere in the list), 277, 848,
    # 881 (the numbers are node ports, and others mean nothing), 304-306; docs/CHANGELOG.md. Its Nodes have
    # AWS's scheme.
    Provider(
        "Outscale",
        ("osc", "aws"),
        (Switch(f"{_BETA}/osc-load-balancer-proxy-protocol", star_or_node_ports),),
        # loadbalancer.go: ListenerDefaults; docs/annotations.md (the ports, by default all).
        certificates=(
            Certificate(
                f"{_BETA}/osc-load-balancer-ssl-cert", tls_on(f"{_BETA}/osc-load-balancer-ssl-ports", "*")
            ),
        ),
        publishes_hostname=True,
        hostname=f'{_BETA}/osc-load-balancer-ingress-address: "hostname"',
        ip_mode="cloud-provider-osc 1.31.2, 1.32.2, 1.33.2, 1.34.2 and later, where an address is published",
        switched_on="`*`, or node ports: `30080,30443`",
        sends="v1 ²",
    ),
    # cloudstack-kubernetes-provider 1.1 and 1.2: cloudstack_loadbalancer.go:1140 (exactly `true`; all else is
    # off), protocol.go:85. v1: CloudStack's HAProxyConfigurator writes `send-proxy` for `tcp-proxy`.
    Provider(
        "CloudStack",
        ("external-cloudstack", "cloudstack"),
        (Switch(f"{_BETA}/cloudstack-load-balancer-proxy-protocol", TRUE_OR_FALSE, otherwise_off=True),),
        hostname=f'{_BETA}/cloudstack-load-balancer-hostname: "lb.example.com"',
        switched_on="`true` exactly",
        sends="v1",
    ),
    # IBM's VPC provider: a list of features; "(we don't support v2)" in its source.
    Provider(
        "IBM Cloud (VPC)",
        ("ibm",),
        (Switch(f"{_IBM}-enable-features", member("proxy-protocol")),),
        publishes_hostname=True,
        switched_on="`proxy-protocol` among them",
        sends="v1",
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
        kind=AZURE_PRIVATE,
        kind_of=azure_kind,
        switched_on="`true` in any case",
        sends="v2",
    ),
    # brightbox-cloud-controller-manager: annotations.go; the API takes the names of HAProxy's kinds of
    # header.
    Provider(
        "Brightbox",
        ("brightbox",),
        (Switch(f"{_BETA}/brightbox-load-balancer-listener-proxy-protocol", KIND_OF_HEADER),),
        # The same: the domains of the certificate for the https listener.
        certificates=(Certificate(f"{_BETA}/brightbox-load-balancer-ssl-domains", tls_on("", "443")),),
        publishes_hostname=True,
        switched_on="`v1`, `v2`, `v2-ssl`, `v2-ssl-cn`",
        sends="as named",
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
        switched_on="`standard`",
        sends="v1 ²",
    ),
    # guide.ncloud-docs.com/docs/en/nks-nks-1-8: `true`.
    Provider(
        "Naver Cloud",
        ("ncloud", "navercloud"),
        (Switch(f"{_BETA}/ncloud-load-balancer-proxy-protocol", boolean(UNDOCUMENTED)),),
        switched_on="`true` ¹",
        sends="v1 ²",
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
        switched_on="`*`, or names of ports: `http,https`",
        sends="v1 ²",
    ),
    # kube-loxilb: pkg/agent/manager/loadbalancer/loadbalancer.go:86, 412-417 (its class alone), 550-557
    # (`yes`; all else is off); cmd/loxilb-agent/options.go:300 (the class, by default).
    Provider(
        "loxilb",
        (),
        (Switch("loxilb.io/useproxyprotov2", words({"yes": "v2", "no": "off"}), otherwise_off=True),),
        classes=("loxilb.io/",),
        kind="a Service of class loxilb.io/loxilb",
        kind_of=lambda service: f"a Service of class {service.load_balancer_class}",
        publishes_hostname=True,
        switched_on="`yes`",
        sends="v2",
    ),
    # Gcore's documentation, "Use annotations for Load Balancers": a boolean; its controller is closed source.
    Provider(
        "Gcore",
        ("openstack",),
        tuple(
            Switch(f"loadbalancer.{domain}/proxy-protocol", boolean(UNDOCUMENTED))
            for domain in ("gcore.com", "gcorelabs.com")
        ),
        switched_on="`true` ¹",
        sends="v1 ²",
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
        switched_on="`true` ¹",
        sends="v1 ²",
    ),
    # bizfly-cloud-controller-manager at 58ba5a1: cloud-controller-manager/bizfly/loadbalancer.go:69, 125-143
    # (`true` or `false`, or an error), 410-419 (the status holds the address as a nip.io name if asked).
    Provider(
        "Bizfly Cloud",
        ("bizflycloud",),
        (Switch("kubernetes.bizflycloud.vn/enable-proxy-protocol", TRUE_OR_FALSE),),
        hostname='kubernetes.bizflycloud.vn/enable-ingress-hostname: "true"',
        switched_on="`true` exactly",
        sends="v1 ²",
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
        switched_on="`true`, `True`",
        sends="v1 ²",
    ),
    # kubelb at 80d164b: internal/envoy/resource.go:174 (exactly `v2`; all else is off).
    Provider(
        "KubeLB",
        switches=(Switch("kubelb.k8c.io/proxy-protocol", words({"v2": "v2"}), otherwise_off=True),),
        classes=("kubelb",),  # cmd/ccm/main.go: use-loadbalancer-class,
        switched_on="`v2`",
        sends="v2",
    ),
    # chisel-operator at 38624a6: src/ops.rs:17, src/deployment.rs:81-86, src/daemon.rs:566-583 (no ipMode).
    Provider(
        "chisel-operator",
        switches=(Switch("chisel-operator.io/proxy-protocol", TRUE_OR_FALSE, otherwise_off=True),),
        classes=("chisel-operator.io/",),
        switched_on="`true` exactly",
        sends="v1 ²",
    ),
    # cloud-provider-thalassa at f4f03b3: pkg/provider/annotations.go:14, loadbalancer.go:84, 167, 534;
    # loadbalancer_features.go:15, 56 (ParseBool, or an error); docs/loadbalancer-annotations.md:28 (v1).
    Provider(
        "Thalassa Cloud",
        ("thalassacloud",),
        (Switch("loadbalancer.k8s.thalassa.cloud/enable-proxy-protocol", boolean("v1")),),
        ip_mode="cloud-provider-thalassa, for all load balancers",
        switched_on="`true` ¹",
        sends="v1",
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
        switched_on="`true` exactly",
        sends="v1 ²",
    ),
    # xelon-cloud-controller-manager at bd69c46: internal/xelon/load_balancers.go:40-46, 417-425 (Atoi; empty
    # is off), 533-551.
    Provider(
        "Xelon",
        ("xelon",),
        (Switch(f"{_BETA}/xelon-load-balancer-cluster-proxy-protocol-version", NUMBER_OR_NONE),),
        ip_mode="xelon-cloud-controller-manager, where PROXY is on",
        switched_on="`1`, `2`",
        sends="as named",
    ),
    # clouddk-cloud-controller-manager at a67cef2: clouddkcp/load_balancers.go:42, 349-355, 563 (exactly
    # `true`), 430-440 (an address), util.go:28 (the scheme).
    Provider(
        "Cloud.dk",
        ("clouddk",),
        (
            Switch(
                "kubernetes.cloud.dk/load-balancer-enable-proxy-protocol", TRUE_OR_FALSE, otherwise_off=True
            ),
        ),
        switched_on="`true` exactly",
        sends="v1 ²",
    ),
    # cluster-api-provider-verda: internal/ccm, Frontends (`true` in any case), README.md (version 2).
    Provider(
        "Verda",
        ("verda",),
        (
            Switch(
                "verda.cluster.x-k8s.io/proxy-protocol",
                words({"true": "v2", "false": "off"}, any_case=True),
                otherwise_off=True,
            ),
        ),
        switched_on="`true` in any case",
        sends="v2",
    ),
    # TatNet's cloud controller manager: loadbalancer.go, parseAnnotations (another value is ignored) and
    # statusFor (an address alone); ProviderName (the scheme).
    Provider(
        "TatNet",
        ("tatnet",),
        (Switch("tatnet.ru/lb-proxy-protocol", words({"v1": "v1", "v2": "v2"}), otherwise_off=True),),
        switched_on="`v1`, `v2`",
        sends="as named",
    ),
    # hypervisor.io's documentation, "Service Annotations" (`v1`, `v2` or a boolean; TLS by `ssl-mode`).
    Provider(
        "hypervisor.io",
        switches=(
            Switch(
                f"{_BETA}/managed-loadbalancer-proxy-protocol",
                words({"v1": "v1", "v2": "v2", "true": UNDOCUMENTED, "false": "off"}, any_case=True),
            ),
        ),
        certificates=tuple(
            Certificate(f"{_BETA}/managed-loadbalancer-{key}ssl-mode", hypervisor_tls)
            for key in ("", "port-{port}-")
        ),
        switched_on="`v1`, `v2`, or `true`",
        sends="as named; v1 ²",
    ),
    # k8s-anexia: lbaas.anx.io/load-balancer-proxy-pass-hostname, "to prevent hair-pinning"; no switch.
    Provider(
        "Anexia",
        ("anexia",),
        hostname='lbaas.anx.io/load-balancer-proxy-pass-hostname: "lb.example.com"',
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
    # kube-vip: pkg/kubevip/config_environment.go and its annotations.
    Provider("kube-vip", classes=("kube-vip.io/",), signs=("kube-vip.io/",), announces=True, sends_none=True),
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

_WITHOUT_SWITCH = {"gce", "exoscale", "qcloud", "ionos"}
KNOWN_SCHEMES = frozenset(scheme for provider in PROVIDERS for scheme in provider.schemes) | _WITHOUT_SWITCH
"""With clouds whose load balancers have no PROXY switch: a key found on their nodes is another cloud's."""
