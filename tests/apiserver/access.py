"""Who may do what: bearer tokens and RBAC rules, enforced as the real server does.

See "Using RBAC Authorization" and "Authenticating" in the Kubernetes documentation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import statuses
from .resources import Object
from .routes import VERSION, Asked

DEFAULT_USER = "system:serviceaccount:kube-system:nodeagent"
ANONYMOUS = "system:anonymous"


@dataclass(frozen=True, slots=True)
class Rule:
    """One RBAC rule.

    Attributes:
        api_groups: groups, `""` for core, `*` for all.
        resources: plurals or plural/subresource, `*` for all.
        verbs: verbs, `*` for all.
        resource_names: only objects of these names; empty for all. A list or watch falls under such a rule
            only with the fieldSelector metadata.name, a create never does.
        namespace: only there; None everywhere (a ClusterRole bound by a ClusterRoleBinding).
    """

    api_groups: Sequence[str]
    resources: Sequence[str]
    verbs: Sequence[str]
    resource_names: Sequence[str] = ()
    namespace: str | None = None

    def allows(self, asked: Asked, name: str) -> bool:
        """Tell whether the rule covers a request about the object `name` (empty: about no single one)."""
        assert asked.resource is not None, "rules are about resources"
        plural, subresource = asked.resource.plural, asked.subresource
        wanted = {"*", f"{plural}/{subresource}", f"*/{subresource}"} if subresource else {"*", plural}
        return (
            not {"*", asked.resource.group}.isdisjoint(self.api_groups)
            and not wanted.isdisjoint(self.resources)
            and not {"*", asked.verb}.isdisjoint(self.verbs)
            and (not self.resource_names or name in self.resource_names)
            and self.namespace in {None, asked.namespace}
        )


def rules_bound_to(documents: Iterable[Object], namespace: str, account: str) -> list[Rule]:
    """Give the rules that bindings among the documents, which have their roles, grant to a ServiceAccount."""
    objects = list(documents)
    roles = {
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj.get("rules") or []
        for obj in objects
    }
    rules: list[Rule] = []
    for obj in objects:
        if obj["kind"] not in {"ClusterRoleBinding", "RoleBinding"} or not any(
            subject["kind"] == "ServiceAccount"
            and (subject.get("namespace"), subject["name"]) == (namespace, account)
            for subject in obj.get("subjects") or []
        ):
            continue
        where = obj["metadata"].get("namespace") if obj["kind"] == "RoleBinding" else None
        kind, name = obj["roleRef"]["kind"], obj["roleRef"]["name"]
        rules += [
            Rule(rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", []), where)
            for rule in roles[kind, where if kind == "Role" else None, name]
            if "resources" in rule
        ]
    return rules


class Access:
    """The server's users and their rights; may be changed while the server runs.

    At first no request needs a token, every request is DEFAULT_USER's, and all is allowed.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._rules: dict[str, tuple[Rule, ...]] = {}

    def require_token(self, token: str, user: str = DEFAULT_USER) -> None:
        """Know a user by a token; from the first one on, requests without a token are anonymous."""
        self._tokens[token] = user

    def revoke_token(self, token: str) -> None:
        """Forget a token: 401 from now on. Streams that are open go on, as with the real server."""
        del self._tokens[token]

    def allow_only(self, rules: Iterable[Rule], user: str = DEFAULT_USER) -> None:
        """Let a user do what the rules say and nothing else."""
        self._rules[user] = tuple(rules)

    def allow_all(self) -> None:
        """Let the default user do everything."""
        self._rules.pop(DEFAULT_USER, None)

    def a_token(self) -> str | None:
        """Give a token that the default user is known by, None when there is none."""
        return next((token for token, user in [*self._tokens.items()] if user == DEFAULT_USER), None)

    def user(self, authorization: str) -> str:
        """Tell whose request it is by its Authorization header; raises ApiError 401 for an unknown token."""
        # A server without tokens is like one behind `kubectl proxy`: it knows its user anyhow.
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            if token.strip() in self._tokens:
                return self._tokens[token.strip()]
            if self._tokens:
                raise statuses.ApiError(401, "Unauthorized", "Unauthorized")
        return ANONYMOUS if self._tokens else DEFAULT_USER

    def impersonated(self, user: str, wanted: str) -> str:
        """Tell as whom a user acts who asks to act as another; raises ApiError 403 if it may not."""
        may = user != ANONYMOUS and user not in self._rules
        if wanted and not may:
            action = 'cannot impersonate resource "users" in API group "" at the cluster scope'
            text = f'users "{wanted}" is forbidden: User "{user}" {action}'
            raise statuses.forbidden(text)
        return wanted or user

    def check(self, user: str, asked: Asked, name: str) -> None:
        """Let a user's request pass; raises ApiError 403 when no rule allows it.

        The name is the object's, from the path or from the fieldSelector of a list or watch.
        """
        resource = asked.resource
        rules = self._rules.get(user, () if user == ANONYMOUS else None)
        if resource is None:
            # The roles system:public-info-viewer, for all, and system:discovery, for who is known.
            open_to = (VERSION,) if user == ANONYMOUS else (VERSION, "/api", "/openapi")
            if rules is not None and not any(asked.path.startswith(path) for path in open_to):
                raise statuses.forbidden(f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"')
            return
        if rules is None or any(rule.allows(asked, name) for rule in rules):
            return
        what = f"{resource.plural}/{asked.subresource}" if asked.subresource else resource.plural
        where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
        text = f'User "{user}" cannot {asked.verb} resource "{what}" in API group "{resource.group}" {where}'
        subject = f'{resource.qualified} "{name}"' if name else resource.qualified
        raise statuses.forbidden(f"{subject} is forbidden: {text}")
