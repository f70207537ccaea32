"""The fix that needs no agent: a MutatingAdmissionPolicy that sets `ipMode: Proxy` in each status. Pure.

KEP-3962 (v1beta1 in 1.34, v1 in 1.36) and KEP-1860 (ipMode). It uses a JSON patch, since an apply
configuration may not change a part of an atomic list, and only CEL's core, the same in every version.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from string import Template
from textwrap import indent

from nodeagent.doctor.load_balancer_findings import LEFT_ALONE
from nodeagent.errors import SourceError, one_line
from nodeagent.model.objects import ObjectRef, Service
from nodeagent.plan.identity.identify import Identity
from nodeagent.sources.kubernetes.single_requests import ClusterAnswers

POLICY_NAME = "nodeagent-ip-mode-proxy"
_MOST_ADDRESSES = 32
"""For one Service. CEL's core can't count a list, so each place is written out."""

_ADDRESSES = "object.status.loadBalancer.ingress"
# Any other mode is the controller's own choice (KEP-6272 adds Router), and is kept.
_SHORT_CIRCUITED = "has({0}.ip) && (!has({0}.ipMode) || {0}.ipMode == 'VIP')"
# Without the policy the cluster is as it was before: failurePolicy never holds back a controller's write.
_POLICY = Template("""\
---
apiVersion: admissionregistration.k8s.io/$version
kind: MutatingAdmissionPolicy
metadata:
  name: $name
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - apiGroups: ['']
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [services/status]
      scope: Namespaced
  matchConditions:
  - name: services-that-send-proxy
    expression: |
$services
  - name: an-address-is-short-circuited
    expression: |
      has(object.status) && has(object.status.loadBalancer) && has($addresses)
      && $addresses.exists(entry, $entry_is_short_circuited)
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        [$places]
          .filter(i, i < size($addresses) && $place_is_short_circuited)
          .map(i, JSONPatch{
            op: 'add',
            path: '/status/loadBalancer/ingress/' + string(i) + '/ipMode',
            value: 'Proxy'
          })
---
apiVersion: admissionregistration.k8s.io/$version
kind: MutatingAdmissionPolicyBinding
metadata:
  name: $name
spec:
  policyName: $name
""")


Target = tuple[Service, Identity]


def policy_targets(
    services: Iterable[Service], identities: Mapping[ObjectRef, Identity]
) -> tuple[Target, ...]:
    """Return the Services that send PROXY, or terminate TLS, and are published by an address, sorted.

    One that has `ipMode: Proxy` already is among them: the policy may be the one that set it.
    """
    return tuple(
        (service, identity)
        for service in sorted(services, key=lambda service: service.ref)
        if any(point.ip is not None for point in service.points)
        if (identity := identities[service.ref]).code not in LEFT_ALONE
        if identity.proxy or identity.terminated
    )


def policy_text(targets: Iterable[Target], cluster: ClusterAnswers) -> str:
    """Return the policy and its binding as YAML for kubectl, with comments on how to use it.

    Raises:
        SourceError: no Service needs it, or the API server has no such policies; the text says why.
    """
    wanted = tuple(targets)
    if not wanted:
        raise SourceError(
            "no policy: no LoadBalancer Service with an address is known to send the PROXY header or to "
            "terminate TLS; nodeagent doctor shows what was detected of each"
        )
    left_out = [
        f"{service.ref.path}: {identity.announcer} announces its address on a node, where kube-proxy's "
        "rules accept the traffic: with ipMode: Proxy, it would be lost for everyone"
        for service, identity in wanted
        if identity.announcer
    ]
    found = [(service, identity) for service, identity in wanted if not identity.announcer]
    if not found:
        raise SourceError(f"no policy: {'; '.join(left_out)}; nodeagent doctor names the other fixes")
    if not cluster.policy_api:
        why = cluster.why.get("policy_api") or (
            f"Kubernetes {cluster.version or 'of this version'} does not serve MutatingAdmissionPolicy: 1.36 "
            "and later do; 1.34 and 1.35 do where the API server runs with "
            "--feature-gates=MutatingAdmissionPolicy=true and "
            "--runtime-config=admissionregistration.k8s.io/v1beta1=true"
        )
        raise SourceError(f"no policy: {why}; nodeagent doctor names the other fixes")
    text = _POLICY.substitute(
        version=cluster.policy_api,
        name=POLICY_NAME,
        services=indent(" ||\n".join(map(_condition, found)), " " * 6),
        addresses=_ADDRESSES,
        entry_is_short_circuited=_SHORT_CIRCUITED.format("entry"),
        place_is_short_circuited=_SHORT_CIRCUITED.format(f"{_ADDRESSES}[i]"),
        places=", ".join(map(str, range(_MOST_ADDRESSES))),
    )
    comments = (*_head(found), *(one_line(f"Left out: {each}") for each in left_out))
    return "".join(f"# {line}\n" for line in comments) + text


def _condition(target: Target) -> str:
    service, identity = target
    ref = service.ref
    terms = [
        f"object.metadata.namespace == {_literal(ref.namespace)}",
        f"object.metadata.name == {_literal(ref.name)}",
    ]
    if identity.annotations:
        terms.append("has(object.metadata.annotations)")
    for key, value in identity.annotations.items():
        terms.append(f"{_literal(key)} in object.metadata.annotations")
        terms.append(f"object.metadata.annotations[{_literal(key)}] == {_literal(value)}")
    return f"({' && '.join(terms)})"


def _literal(text: str) -> str:
    """Return a CEL string ("Language definition", "Strings"): all but printable ASCII is escaped."""
    letters = (
        letter
        if letter.isascii() and letter.isprintable() and letter not in "'\\"
        else f"\\U{ord(letter):08x}"
        for letter in text
    )
    return f"'{''.join(letters)}'"


def _head(targets: Iterable[Target]) -> Iterator[str]:
    yield "Sets ipMode: Proxy on each write of the status of these Services, so that kube-proxy no longer"
    yield "short-circuits their addresses. When this is the better choice: docs/fixes.md"
    for service, identity in targets:
        points = (point for point in service.points if point.ip is not None)
        addresses = ", ".join(f"{point.ip} (ipMode {one_line(point.ip_mode or 'VIP')})" for point in points)
        yield one_line(f"  {service.ref.path}: {addresses}: {identity.reason}")
    yield "Save it, then: kubectl apply -f FILE. It acts on the next write of a status; to have one at once:"
    for service, _ in targets:
        names = f"-n {shlex.quote(one_line(service.ref.namespace))} {shlex.quote(one_line(service.ref.name))}"
        yield f"""  kubectl patch service {names} --subresource=status --type=merge -p '{{"status":{{}}}}'"""
    yield f"To remove it: kubectl delete mutatingadmissionpolicybinding,mutatingadmissionpolicy {POLICY_NAME}"
    yield "and the controller's next write restores its own ipMode."
