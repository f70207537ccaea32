"""The clouds whose rows are the longest, as the first half of the table of controllers.

Each row cites its source, as `repository: file:line` of the controller; `providers` has the whole table.
"""

from nodeagent.model.objects import Service
from nodeagent.plan.identity import readers as read
from nodeagent.plan.identity.rows import Provider

_BETA = "service.beta.kubernetes.io"
_AWS = f"{_BETA}/aws-load-balancer"
_LINODE = f"{_BETA}/linode-loadbalancer"
_OCI = f"{_BETA}/oci-load-balancer"
_VULTR = f"{_BETA}/vultr-loadbalancer"
_DO = f"{_BETA}/do-loadbalancer"
_SCALEWAY = f"{_BETA}/scw-loadbalancer"
_ON_REQUEST_OCI = 'oci.oraclecloud.com/ingress-ip-mode: "proxy"'
_HCLOUD = "load-balancer.hetzner.cloud"
# cloud-provider-aws: pkg/providers/v1/aws.go (ssl-cert, and ssl-ports, by default all); the same keys in
# aws-load-balancer-controller: pkg/service/model_build_listener.go.
_AWS_CERTIFICATE = {f"{_AWS}-ssl-cert": read.tls_on({f"{_AWS}-ssl-ports": "*"})}
_AWS_ATTRIBUTES = {f"{_AWS}-target-group-attributes": read.target_group_attributes}

_CLASSIC, _NETWORK = "a classic load balancer", "a network load balancer"
_AWS_CONTROLLER = "one of the AWS Load Balancer Controller"
_OCI_LB = "a load balancer of type lb"
_IOLB = "a load balancer of class iolb"


def _digitalocean_tls(value: str, service: Service) -> frozenset[int]:
    unlisted = "*" if service.annotations.get(f"{_DO}-protocol") in {"https", "http2"} else ""
    lists = {f"{_DO}-tls-ports": "443", f"{_DO}-http2-ports": "", "": unlisted}
    plain = read.tls_on({f"{_DO}-http-ports": ""})(value, service)
    return read.tls_on(lists, f"{_DO}-tls-passthrough")(value, service) - plain


def _aws_kind(service: Service) -> str:
    """Return which of three reads a Service: in-tree, an NLB never reads the key for Classic ELBs."""
    # cloud-provider-aws: pkg/providers/v1/aws.go:2462-2562; Services with a class are not its own.
    # aws-load-balancer-controller: it serves the types `external` and `nlb-ip`, and one class
    # (--load-balancer-class; EKS Auto Mode's is eks.amazonaws.com/nlb).
    kind = service.annotations.get(f"{_AWS}-type", "")
    if service.load_balancer_class is not None or kind in {"external", "nlb-ip"}:
        return _AWS_CONTROLLER
    return _NETWORK if kind == "nlb" else _CLASSIC


def _oci_kind(service: Service) -> str:
    kind = service.annotations.get("oci.oraclecloud.com/load-balancer-type", "").lower()
    return _NETWORK if kind == "nlb" else _OCI_LB


def _ovh_kind(service: Service) -> str:
    class_name = service.annotations.get("loadbalancer.ovhcloud.com/class", "iolb").lower()
    return _IOLB if class_name == "iolb" else f"one of class {class_name}"


def _ovh_doubt(service: Service) -> str:
    if "loadbalancer.ovhcloud.com/class" in service.annotations:
        return ""
    return "nodeagent assumes class iolb; class octavia, the default on Kubernetes 1.32, does not read it"


def _alibaba_doubt(service: Service) -> str:
    keys = [f"{_BETA}/{name}-loadbalancer-" for name in ("alibaba-cloud", "alicloud")]
    own = any(f"{key}id" in service.annotations for key in keys)
    if not own or "true" in [service.annotations.get(f"{key}force-override-listeners") for key in keys]:
        return ""
    return (
        "nodeagent assumes that it counts; where the Service names the load balancer by its id, the "
        "controller changes no listener, unless force-override-listeners is true"
    )


CLOUDS: tuple[Provider, ...] = (
    # digitalocean-cloud-controller-manager: cloud-controller-manager/do/lb_annotations.go:157,183 (keys),
    # loadbalancers.go:1678-1681 (ParseBool), 1737-1750 and cloud.go:162 (the type; since 0.1.61, without one,
    # REGIONAL_NETWORK, a pass-through that sends no header: DEFAULT_LB_TYPE, which is not visible, changes
    # that); v1: docs.digitalocean.com/glossary/proxy. No ipMode: its issue 811.
    Provider(
        "DigitalOcean",
        ("digitalocean",),
        {f"{_DO}-enable-proxy-protocol": read.digitalocean},
        # loadbalancers.go:1092-1190: the ports of two lists, by default 443; all in no list, by the protocol.
        certificates=dict.fromkeys((f"{_DO}-certificate-id", f"{_DO}-certificate-name"), _digitalocean_tls),
        hostname=f'{_DO}-hostname: "lb.example.com"',
        doubt=read.digitalocean_doubt,
        off_unless_annotated=True,
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
        {"load-balancer.hetzner.cloud/uses-proxyprotocol": read.boolean()},
        # load_balancer.go: certificates count with the protocol `https` alone, which holds for all ports.
        certificates={f"{_HCLOUD}/protocol": read.tls_for_https},
        hostname=f'{_HCLOUD}/hostname: "lb.example.com"',
        ip_mode="hcloud-cloud-controller-manager 1.21.0 and later, where PROXY is on; 1.29.1 and later, "
        "where HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL switches it on",
        workload="deployment/hcloud-cloud-controller-manager",
    ),
    # cloud-provider-openstack: pkg/openstack/loadbalancer.go:72,90,479-492 (as written: not `True`),
    # 1638-1666; ipMode since 7a4290e8 (1.30.0), v2 since bcd8033ca (1.31.0). OVH, Selectel, others.
    Provider(
        "OpenStack",
        ("openstack",),
        {"loadbalancer.openstack.org/proxy-protocol": read.openstack},
        # loadbalancer.go, getListenerProtocol: TERMINATED_HTTPS on every port.
        certificates={"loadbalancer.openstack.org/default-tls-container-ref": read.tls_everywhere},
        hostname='loadbalancer.openstack.org/hostname: "lb.example.com"',
        ip_mode="openstack-cloud-controller-manager 1.30.0 and later, where PROXY is on",
        workload="daemonset/openstack-cloud-controller-manager",
        switched_on="exactly `true`, `v1` or `v2`; `True` is off (also OVH's Octavia, Selectel)",
        sends="v1, v1, v2",
    ),
    # OVH's guides "migrate from Load Balancer for MKS (IOLB) to Public Cloud Load Balancer" (the values) and
    # "Expose your applications using Public Cloud Load Balancer" (the default class). Closed source.
    Provider(
        "OVH (IOLB)",
        ("openstack",),
        {f"{_BETA}/ovh-loadbalancer-proxy-protocol": read.KIND_OF_HEADER},
        kind=_IOLB,
        kind_of=_ovh_kind,
        doubt=_ovh_doubt,
    ),
    # scaleway-cloud-controller-manager: scaleway/loadbalancers_annotations.go:384-470 and
    # loadbalancers.go:1064 (of v1 and v2 a boolean, but `1` and `0` are ports; spaces are dropped; a port in
    # both is an error; the old key decides only for ports in neither, and is a boolean first); ipMode only
    # where all ports send PROXY: e08417d, 0.33.0. So a mixed Service stays short-circuited.
    Provider(
        "Scaleway",
        ("scaleway",),
        {
            f"{_SCALEWAY}-proxy-protocol-v1": read.boolean_or_ports("v1"),
            f"{_SCALEWAY}-proxy-protocol-v2": read.boolean_or_ports("v2"),
            f"{_SCALEWAY}-send-proxy-v2": read.boolean_or_service_ports,
        },
        certificates={f"{_SCALEWAY}-certificate-ids": read.tls_by_port},
        hostname=f'{_SCALEWAY}-use-hostname: "true"',
        off_unless_annotated=True,
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
        {
            f"{_LINODE}-port-{{port}}": read.linode_port,
            f"{_LINODE}-default-proxy-protocol": read.linode_version,
            f"{_LINODE}-proxy-protocol": read.linode_version,
        },
        certificates={f"{_LINODE}-port-{{port}}": read.linode_tls},
        hostname=f'{_LINODE}-hostname-only-ingress: "true"',
        off_unless_annotated=True,
    ),
    # vultr-cloud-controller-manager: vultr/loadbalancers.go, getProxyProtocol (ParseBool; an error means
    # false); docs/load-balancers.md:22,41.
    Provider(
        "Vultr",
        ("vultr",),
        {f"{_VULTR}-proxy-protocol": read.otherwise_off(read.boolean())},
        # vultr/loadbalancers.go:754-772 (either secret), 1061-1112 (https-ports, or all by the protocol).
        certificates={
            **dict.fromkeys(
                (f"{_VULTR}-ssl", f"{_VULTR}-auto-ssl"),
                read.tls_on({f"{_VULTR}-https-ports": ""}, f"{_VULTR}-ssl-pass-through"),
            ),
            f"{_VULTR}-protocol": read.tls_for_https,
        },
        hostname=f'{_VULTR}-hostname: "lb.example.com"',
        off_unless_annotated=True,
        switched_on="`true` ¹; anything else is off",
    ),
    # The status of AWS's load balancers holds only a host name.
    # cloud-provider-aws: pkg/providers/v1/aws.go:106-111, 2565-2572 (`*` or an error). Classic ELBs send only
    # v1 (Elastic Load Balancing, ProxyProtocolPolicyType).
    Provider(
        "AWS (Classic Load Balancer)",
        ("aws",),
        {f"{_AWS}-proxy-protocol": read.words({"*": "v1", "": "off"})},
        certificates=_AWS_CERTIFICATE,
        kind=_CLASSIC,
        kind_of=_aws_kind,
        publishes_hostname=True,
    ),
    # cloud-provider-aws 1.34.0 and later: commit 73428cd2, docs/service_controller.md:46.
    Provider(
        "AWS (Network Load Balancer)",
        ("aws",),
        _AWS_ATTRIBUTES,
        certificates=_AWS_CERTIFICATE,
        kind=_NETWORK,
        kind_of=_aws_kind,
        publishes_hostname=True,
    ),
    # aws-load-balancer-controller: pkg/service/model_build_target_group.go:327-373 (the order; the ports that
    # are not listed are switched off); docs/guide/service/annotations.md:301-336.
    Provider(
        "AWS (Load Balancer Controller)",
        ("aws",),
        {
            f"{_AWS}-proxy-protocol": read.words({"*": "v2"}),
            f"{_AWS}-proxy-protocol-per-target-group": read.listed_ports,
            f"{_AWS}-target-group-attributes.{{port}}": read.target_group_attributes,
            **_AWS_ATTRIBUTES,
        },
        certificates=_AWS_CERTIFICATE,
        classes=("service.k8s.aws/", "eks.amazonaws.com/"),
        kind=_AWS_CONTROLLER,
        kind_of=_aws_kind,
        publishes_hostname=True,
        switched_on="`*`; ports: `80,443`",
    ),
    # oci-cloud-controller-manager: pkg/cloudprovider/providers/oci/load_balancer_spec.go:1073-1083 (Atoi),
    # 1536-1544 (the type, in any case, says which of the two keys is read); ipMode on request:
    # load_balancer.go:2020-2047, 9e50f1afb, 1.30.0.
    Provider(
        "Oracle (Load Balancer)",
        ("oci",),
        {f"{_OCI}-connection-proxy-protocol-version": read.NUMBER},
        # load_balancer_spec.go:320 (the list of ports alone decides), load_balancer_util.go:747.
        certificates={f"{_OCI}-ssl-ports": read.tls_on({f"{_OCI}-ssl-ports": ""})},
        kind=_OCI_LB,
        kind_of=_oci_kind,
        ip_mode_on_request=_ON_REQUEST_OCI,
        switched_on="`1`, `2`, unless `oci.oraclecloud.com/load-balancer-type` is `nlb`",
    ),
    # The same, load_balancer_spec.go:255, 1179-1184 (`true` in any case).
    Provider(
        "Oracle (Network Load Balancer)",
        ("oci",),
        {"oci-network-load-balancer.oraclecloud.com/is-ppv2-enabled": read.V2_IF_TRUE},
        kind=_NETWORK,
        kind_of=_oci_kind,
        ip_mode_on_request=_ON_REQUEST_OCI,
        switched_on="`true` in any case, with `oci.oraclecloud.com/load-balancer-type: nlb`",
    ),
    # UpCloud's cloud-controller-manager: internal/loadbalancer/utils.go:166,420, README.md:63-150. The
    # status holds only a host name.
    Provider(
        "UpCloud",
        ("upcloud",),
        {f"{_BETA}/upcloud-load-balancer-config": read.upcloud_config},
        certificates={f"{_BETA}/upcloud-load-balancer-config": read.upcloud_tls},
        publishes_hostname=True,
    ),
    # cloud-provider-stackit: pkg/ccm/loadbalancer_spec.go:28-44, 422-476 (yawol's keys count as well, and of
    # these any text but a boolean is false; contradictions are errors; an empty filter: no port).
    Provider(
        "STACKIT",
        ("stackit", "openstack"),
        dict.fromkeys(read.STACKIT, read.stackit),
        ip_mode_on_request='lb.stackit.cloud/ip-mode-proxy: "true"',
    ),
    # alibaba cloud-provider: pkg/controller/service/reconcile/annotation/annotations.go:98,150-171 (the older
    # key is read if the other is absent); clbv1/listeners.go:220-221, nlbv2/listeners.go:205-206 (`on`, for
    # the NLB in any case; v2); pkg/provider/alibaba/slb/listener.go:298, 323 (TCP's and UDP's listeners alone
    # take it). No ipMode in its source; the NLB's status holds only a host name.
    Provider(
        "Alibaba",
        ("alicloud",),
        {
            f"{_BETA}/{prefix}-loadbalancer-proxy-protocol": read.alibaba
            for prefix in ("alibaba-cloud", "alicloud")
        },
        # annotations.go: protocol-port, as `https:443,http:80`; of the NLB `tcpssl:443`.
        certificates=dict.fromkeys(read.ALIBABA_PORTS, read.tls_by_protocol("https", "tcpssl")),
        classes=("alibabacloud.com/",),
        doubt=_alibaba_doubt,  # clbv1/model_applier.go:100, nlbv2/model_applier.go:116
        hostname=f'{_BETA}/alibaba-cloud-loadbalancer-hostname: "lb.example.com"',
        switched_on="`on`; for `loadBalancerClass: alibabacloud.com/nlb` in any case",
        sends="v2",
    ),
)
