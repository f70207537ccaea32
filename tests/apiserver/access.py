"""Who may do what: bearer tokens and RBAC rules, enforced as the real server does.

See "Using RBAC Authorization" and "Authenticating" in the Kubernetes documentation.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .requests import Asked
from .resources import ApiError, Object, qualified

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

    def allows(self, asked: Asked) -> bool:
        plural, subresource = asked.plural, asked.subresource
        wanted = {"*", f"{plural}/{subresource}", f"*/{subresource}"} if subresource else {"*", plural}
        return (
            not {"*", asked.group}.isdisjoint(self.api_groups)
            and not wanted.isdisjoint(self.resources)
            and not {"*", asked.verb}.isdisjoint(self.verbs)
            and (not self.resource_names or asked.subject in self.resource_names)
            and self.namespace in {None, asked.namespace}
        )


def rules_bound_to(documents: Iterable[Object], namespace: str, account: str) -> list[Rule]:
    """Return the rules that bindings among the documents, with their roles, grant to a ServiceAccount."""
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
        self._rules[user] = tuple(rules)

    def allow_all(self) -> None:
        self._rules.pop(DEFAULT_USER, None)

    def a_token(self) -> str | None:
        """Return a token that the default user is known by, None if there is none."""
        return next((token for token, user in [*self._tokens.items()] if user == DEFAULT_USER), None)

    def check(self, asked: Asked, authorization: str, impersonated: str) -> None:
        """Let a request with these headers pass, or raise ApiError 401 or 403."""
        # A server without tokens is like one behind `kubectl proxy`: it knows its user anyhow.
        user = ANONYMOUS if self._tokens else DEFAULT_USER
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer" and self._tokens:
            if token.strip() not in self._tokens:
                raise ApiError(401, "Unauthorized", "Unauthorized")
            user = self._tokens[token.strip()]
        if impersonated:
            if self._rules_of(user) is not None:
                action = 'cannot impersonate resource "users" in API group "" at the cluster scope'
                raise _forbidden(f'users "{impersonated}" is forbidden: User "{user}" {action}')
            user = impersonated
        rules = self._rules_of(user)
        if rules is None:
            return
        if not asked.plural:
            # The roles system:public-info-viewer, for all, and system:discovery, for who is known.
            open_to = ("/version", *(() if user == ANONYMOUS else ("/api", "/openapi")))
            if not asked.path.startswith(open_to):
                raise _forbidden(f'forbidden: User "{user}" cannot {asked.verb} path "{asked.path}"')
        elif not any(rule.allows(asked) for rule in rules):
            what = f"{asked.plural}/{asked.subresource}" if asked.subresource else asked.plural
            where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
            name = f' "{asked.subject}"' if asked.subject else ""
            action = f'cannot {asked.verb} resource "{what}" in API group "{asked.group}" {where}'
            subject = qualified(asked.plural, asked.group) + name
            raise _forbidden(f'{subject} is forbidden: User "{user}" {action}')

    def _rules_of(self, user: str) -> tuple[Rule, ...] | None:
        return self._rules.get(user, () if user == ANONYMOUS else None)


def _forbidden(message: str) -> ApiError:
    return ApiError(403, "Forbidden", message)
