"""Who may: delegated to kube-apiserver by SubjectAccessReview, with short cuts that keep us alive when it is slow."""

from __future__ import annotations

from typing import Any, Final, Protocol

from apiserver.apis.core.resources import SUBJECT_ACCESS_REVIEWS
from apiserver.apis.meta import fields, labels
from apiserver.apis.meta.errors import Details, Forbidden, InternalError, StatusError
from apiserver.apis.meta.objects import Object, dig
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints.filters.expiring import Expiring
from apiserver.endpoints.filters.reviewing import Answered, ask, uncounted
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.users import MASTERS, User

ALWAYS_ALLOWED: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""Exactly these paths, for the kubelet; not what lies below them."""
SECONDS: Final = 10.0
_SIZE: Final = 8192
_MAX_CACHED: Final = 10_000


class Authorizer(Protocol):
    """Says no by raising."""

    async def check(self, user: User, info: RequestInfo) -> None:
        """Return if the user may.

        Raises:
            Forbidden: they may not.
            InternalError: nobody can say.
        """
        ...


class AllowAll:
    """For development: everyone may everything."""

    async def check(self, user: User, info: RequestInfo) -> None:
        """Allow."""


class Delegated:
    """Asks kube-apiserver, and remembers each answer for ten seconds."""

    def __init__(self, client: Client, answered: Answered = uncounted) -> None:
        self._client = client
        self._answered = answered
        self._answers: Expiring[str, tuple[bool, str]] = Expiring(SECONDS, _SIZE)

    async def check(self, user: User, info: RequestInfo) -> None:
        """Return if the user may: ``system:masters`` always, health checks for everyone, all else as kube-apiserver says."""
        if MASTERS in user.groups or (not info.is_resource and info.path in ALWAYS_ALLOWED):
            return
        spec = review_spec(user, info)
        key = repr(spec)
        answer = self._answers.get(key)
        if answer is None:
            answer = await self._ask(spec)
            if len(key) <= _MAX_CACHED:
                self._answers.put(key, answer)
        allowed, reason = answer
        if not allowed:
            raise forbidden(user, info, reason)

    async def _ask(self, spec: Object) -> tuple[bool, str]:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await ask(self._client, SUBJECT_ACCESS_REVIEWS, review, self._answered)
        except (StatusError, TransportError) as error:
            raise InternalError(f"ask kube-apiserver whether {spec.get('user')} may: {error}") from error
        return dig(answer, "status", "allowed") is True, str(dig(answer, "status", "reason") or "")


def review_spec(user: User, info: RequestInfo) -> Object:
    """Return ``spec`` of the SubjectAccessReview for a request."""
    spec: Object = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in sorted(user.extra.items())}
    if not info.is_resource:
        spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
        return spec
    attributes: dict[str, Any] = {
        "namespace": info.namespace,
        "verb": info.verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "subresource": info.subresource,
        "name": info.name,
    }
    spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value} | _selectors(info)
    return spec


def _selectors(info: RequestInfo) -> Object:
    """Return the selectors of a list as requirements: an authorizer may allow what is narrow enough. Unreadable ones are not passed on."""
    found: Object = {}
    try:
        if info.label_selector and (by_label := labels.parse(info.label_selector).requirements):
            operators = {"=": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
            requirements = [
                {"key": each.key, "operator": operators[each.operator], **({"values": list(each.values)} if each.values else {})}
                for each in by_label
                if each.operator in operators
            ]
            if requirements:
                found["labelSelector"] = {"requirements": requirements}
        if info.field_selector and (by_field := fields.parse(info.field_selector).terms):
            terms = [{"key": each.field, "operator": "In" if each.equal else "NotIn", "values": [each.value]} for each in by_field]
            found["fieldSelector"] = {"requirements": terms}
    except ValueError:
        return {}
    return found


def forbidden(user: User, info: RequestInfo, reason: str) -> Forbidden:
    """Return the error in Go's words, which kubectl shows as they are."""
    because = f": {reason}" if reason else ""
    if not info.is_resource:
        return Forbidden(f'forbidden: User "{user.name}" cannot {info.verb} path "{info.path}"{because}')
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    about = f'{qualified} "{info.name}"' if info.name else qualified
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    message = (
        f'{about} is forbidden: User "{user.name}" cannot {info.verb} resource "{resource}" in API group "{info.group}" {where}{because}'
    )
    return Forbidden(message, Details(name=info.name, group=info.group, kind=info.resource))
