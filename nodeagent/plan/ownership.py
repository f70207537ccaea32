"""Which load balancer serves an object that asks for names (docs/decisions/0014-whose-name.md).

The object's own status knows best. Where it says nothing, its class does: by the configuration, or because
all other Ingresses of the class report one and the same load balancer. A status is written by the
controller, under rights that who writes Ingresses does not have.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nodeagent.config.options import ClassService
from nodeagent.model.desired import Verdict
from nodeagent.model.objects import LoadBalancerPoint, ObjectRef
from nodeagent.plan.claims.claim import Claim, Whereabouts
from nodeagent.plan.load_balancers import LoadBalancerPlan


@dataclass(frozen=True, slots=True)
class Ownership:
    """The load balancer, or None and why there is none.

    `how` tells the way it was found, where it was not the object's own status and not for want of choice.
    """

    load_balancer: LoadBalancerPlan | None
    code: str = ""
    reason: str = ""
    how: str = ""


class Owners:
    """Finds the load balancer for each of many objects; knows what all of them together tell.

    Args:
        claims: all of them: what some report is evidence for others.
        load_balancers: all of them.
        configured: the option `loadBalancers.ingressClasses`.
    """

    def __init__(
        self,
        claims: Iterable[Claim],
        load_balancers: Sequence[LoadBalancerPlan],
        configured: Sequence[ClassService] = (),
    ) -> None:
        self._found: dict[Whereabouts, Ownership] = {}
        self._configured = {entry.ingress_class: entry for entry in reversed(configured)}
        self._by_path = {plan.service.ref.path: plan for plan in load_balancers}
        self._proxies = [plan for plan in load_balancers if plan.proxy]
        self._by_point = _by_point(load_balancers)
        self._by_gateway = {
            (plan.service.ref.namespace, plan.service.gateway): plan
            for plan in sorted(load_balancers, key=_served_last)
            if plan.service.gateway
        }
        self._learned: dict[str, dict[str, LoadBalancerPlan]] = {}
        self._serves: dict[str, set[tuple[str, str | None]]] = {}
        self._learn({claim.whereabouts for claim in claims})

    def of(self, whereabouts: Whereabouts) -> Ownership:
        """The load balancer of an object: the first way that leads to one or to a reason."""
        found = self._found.get(whereabouts)
        if found is None:
            found = self._found[whereabouts] = (
                _unattached(whereabouts)
                or self._by_status(whereabouts)
                or self._by_gateway_name(whereabouts.gateway)
                or _unusable_status(whereabouts)
                or self._by_configured_class(whereabouts)
                or self._by_learned_class(whereabouts)
                or self._by_want_of_choice(whereabouts)
            )
        return found

    def _learn(self, all_whereabouts: Iterable[Whereabouts]) -> None:
        for whereabouts in all_whereabouts:
            ingress_class = whereabouts.ingress_class
            found = self._by_status(whereabouts) if ingress_class else None
            if ingress_class and found and found.load_balancer:
                path = found.load_balancer.service.ref.path
                self._learned.setdefault(ingress_class, {})[path] = found.load_balancer
                self._serves.setdefault(path, set()).add((ingress_class, whereabouts.controller))

    def _by_status(self, whereabouts: Whereabouts) -> Ownership | None:
        found = {
            plan.service.ref: plan
            for key in _keys(whereabouts.points)
            for plan in self._by_point.get(key, ())[:1]
        }
        # Where it reports several, the one that the relay serves is meant.
        return Ownership(min(found.values(), key=_served_first)) if found else None

    def _by_gateway_name(self, gateway: ObjectRef | None) -> Ownership | None:
        """By the label with which an implementation marks the Service that it made for a Gateway."""
        plan = self._by_gateway.get((gateway.namespace, gateway.name)) if gateway else None
        return Ownership(plan) if plan else None

    def _by_configured_class(self, whereabouts: Whereabouts) -> Ownership | None:
        for name in (whereabouts.ingress_class, whereabouts.controller):
            entry = self._configured.get(name) if name else None
            if entry is None:
                continue
            plan = self._by_path.get(entry.path)
            if plan is not None:
                return Ownership(plan, how=f"{plan.service.ref} by loadBalancers.ingressClasses ({name})")
            reason = (
                f"loadBalancers.ingressClasses gives {name} to Service {entry.path}: "
                "no LoadBalancer Service is called so"
            )
            return Ownership(None, "UnknownLoadBalancer", reason)
        return None

    def _by_learned_class(self, whereabouts: Whereabouts) -> Ownership | None:
        ingress_class = whereabouts.ingress_class
        learned = self._learned.get(ingress_class, {}) if ingress_class else {}
        if not learned:
            return None
        if len(learned) == 1:
            (plan,) = learned.values()
            return Ownership(
                plan, how=f"{plan.service.ref} by what other Ingresses of class {ingress_class} report"
            )
        reason = (
            f"{whereabouts.status} is empty and Ingresses of its class {ingress_class} report several load "
            f"balancers: {', '.join(sorted(learned))}"
        )
        return Ownership(None, "AmbiguousLoadBalancer", reason)

    def _by_want_of_choice(self, whereabouts: Whereabouts) -> Ownership:
        if not self._proxies:
            return Ownership(None, "NoProxyLoadBalancer", "no load balancer of this cluster sends PROXY")
        if len(self._proxies) > 1:
            reason = (
                f"{whereabouts.status} is empty and {len(self._proxies)} load balancers send PROXY: "
                "can't tell whose"
            )
            return Ownership(None, "AmbiguousLoadBalancer", reason)
        (only,) = self._proxies
        others = self._only_others(only, whereabouts)
        if others:
            mine = whereabouts.ingress_class or whereabouts.controller
            reason = (
                f"{whereabouts.status} is empty, and the only load balancer that sends PROXY, "
                f"{only.service.ref}, serves class {others} and not {mine}: see loadBalancers.ingressClasses"
            )
            return Ownership(None, "OtherClass", reason)
        return Ownership(only)

    def _only_others(self, plan: LoadBalancerPlan, whereabouts: Whereabouts) -> str:
        """The classes that the load balancer is known to serve, when the object is of none of them."""
        serves = self._serves.get(plan.service.ref.path, set())
        if whereabouts.ingress_class:
            is_one = any(name == whereabouts.ingress_class for name, _ in serves)
        elif whereabouts.controller:
            is_one = any(controller in {whereabouts.controller, None} for _, controller in serves)
        else:
            is_one = True
        return "" if is_one else ", ".join(sorted(name for name, _ in serves))


def _unattached(whereabouts: Whereabouts) -> Ownership | None:
    reason = whereabouts.unattached
    return Ownership(None, "NotAttached", reason) if reason else None


def _unusable_status(whereabouts: Whereabouts) -> Ownership | None:
    reported = sorted(_keys(whereabouts.points))
    if reported:
        reason = f"{whereabouts.status} names {', '.join(reported)}: no LoadBalancer Service has that"
        return Ownership(None, "UnknownLoadBalancer", reason)
    if whereabouts.problems:
        return Ownership(None, "BadStatus", "; ".join(whereabouts.problems))
    return None


def _by_point(load_balancers: Iterable[LoadBalancerPlan]) -> dict[str, list[LoadBalancerPlan]]:
    """The load balancers at each address and hostname; where they share one, the relayed one first."""
    found: dict[str, list[LoadBalancerPlan]] = {}
    for plan in sorted(load_balancers, key=_served_first):
        # Controllers report externalIPs too; those count of which the load balancer's own decision says so.
        for key in _keys(plan.service.points) | set(map(str, plan.decision.addresses)):
            found.setdefault(key, []).append(plan)
    return found


def _keys(points: Iterable[LoadBalancerPoint]) -> set[str]:
    points = tuple(points)
    keys = {str(point.ip) for point in points if point.ip is not None}
    return keys | {point.hostname.lower().removesuffix(".") for point in points if point.hostname}


def _served_first(plan: LoadBalancerPlan) -> tuple[bool, ObjectRef]:
    return (plan.decision.verdict is not Verdict.SERVED, plan.service.ref)


def _served_last(plan: LoadBalancerPlan) -> tuple[bool, ObjectRef]:
    return (plan.decision.verdict is Verdict.SERVED, plan.service.ref)
