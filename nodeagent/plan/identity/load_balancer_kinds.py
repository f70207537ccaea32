"""Which of its kinds of load balancers a provider makes for a Service: each reads annotations of its own."""

from nodeagent.model.objects import Service

AWS_CLASSIC, AWS_NETWORK = "a classic load balancer", "a network load balancer"
AWS_CONTROLLER = "one of the AWS Load Balancer Controller"


def aws_kind(service: Service) -> str:
    """Return AWS's kind: its controller's, or in-tree a network or classic one."""
    # cloud-provider-aws: pkg/providers/v1/aws.go:2462-2562; in-tree NLBs never read the key for Classic ELBs,
    # and Services with a class are not its own. aws-load-balancer-controller: it serves the types `external`
    # and `nlb-ip`, and one class (--load-balancer-class; EKS Auto Mode's is eks.amazonaws.com/nlb).
    kind = service.annotations.get("service.beta.kubernetes.io/aws-load-balancer-type", "")
    if service.load_balancer_class is not None or kind in {"external", "nlb-ip"}:
        return AWS_CONTROLLER
    return AWS_NETWORK if kind == "nlb" else AWS_CLASSIC


OCI_LOAD_BALANCER, OCI_NETWORK = "a load balancer of type lb", "a network load balancer"


def oci_kind(service: Service) -> str:
    """Return Oracle's kind: a network load balancer, or by default the other."""
    kind = service.annotations.get("oci.oraclecloud.com/load-balancer-type", "").lower()
    return OCI_NETWORK if kind == "nlb" else OCI_LOAD_BALANCER


OVH_IOLB = "a load balancer of class iolb"


def ovh_kind(service: Service) -> str:
    """Return OVH's kind: IOLB, unless the class is another."""
    named = service.annotations.get("loadbalancer.ovhcloud.com/class", "iolb").lower()
    return OVH_IOLB if named == "iolb" else f"one of class {named}"


AZURE_PRIVATE = "one with a Private Link Service (azure-pls-create)"


def azure_kind(service: Service) -> str:
    """Return Azure's kind: one with a Private Link Service, or empty."""
    wanted = service.annotations.get("service.beta.kubernetes.io/azure-pls-create", "")
    return AZURE_PRIVATE if wanted.strip().lower() == "true" else ""
