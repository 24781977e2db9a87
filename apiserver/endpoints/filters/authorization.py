"""Authorization by kube-apiserver's SubjectAccessReview, with a cache and exceptions for when it is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from apiserver.apis.core.resources import SUBJECT_ACCESS_REVIEWS
from apiserver.apis.meta import fields, labels
from apiserver.apis.meta.errors import Details, Forbidden, InternalError, StatusError
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.users import MASTERS, User
from apiserver.client.rest import Client, TransportError
from apiserver.endpoints.filters.expiring import Expiring
from apiserver.endpoints.filters.reviewing import FIRST_PAUSE_SECONDS, Answered, ask, uncounted
from apiserver.endpoints.requestinfo import RequestInfo

ALWAYS_ALLOWED: Final = frozenset({"/healthz", "/livez", "/readyz"})
"""For the kubelet."""
SECONDS: Final = 10.0
_SIZE: Final = 8192
_MAX_CACHED: Final = 10_000
_Question: TypeAlias = tuple[User | str, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision and its reason."""

    allowed: bool
    reason: str = ""


ALLOWED: Final = Decision(allowed=True)


class Authorizer(Protocol):
    """Decides whether a user may make a request."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return the decision; raises InternalError if none is possible."""
        ...


class CachingAuthorizer(Authorizer, Protocol):
    """An authorizer with a cache that a caller can bypass."""

    async def decide_anew(self, user: User, info: RequestInfo) -> Decision:
        """Return a current decision, not a cached one; raises InternalError."""
        ...


class AllowAll:
    """Allows everything, for development."""

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Allow the request."""
        del user, info
        return ALLOWED

    async def decide_anew(self, user: User, info: RequestInfo) -> Decision:
        """Allow the request."""
        del user, info
        return ALLOWED


class Delegated:
    """An authorizer that asks kube-apiserver by SubjectAccessReviews, and caches answers."""

    def __init__(
        self,
        client: Client,
        answered: Answered = uncounted,
        *,
        seconds: tuple[float, float] = (SECONDS, SECONDS),
        pause_seconds: float = FIRST_PAUSE_SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``seconds``: cache times of allowed and denied answers, ``pause_seconds``: first pause between tries."""
        self._pause_seconds = pause_seconds
        self._allowed_seconds, self._denied_seconds = seconds
        self._client = client
        self._answered = answered
        self._answers: Expiring[_Question, Decision] = Expiring(_SIZE, now)

    def known(self, user: User, info: RequestInfo) -> Decision | None:
        """Return the decision if it needs no SubjectAccessReview (cached, ``system:masters``, a health path), else None."""
        if MASTERS in user.groups:
            return ALLOWED
        answer = self._answers.get(_key(user, info))
        if answer is not None:
            return answer
        if not info.is_resource and info.path in ALWAYS_ALLOWED:
            return ALLOWED
        return None

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return a decision as by :meth:`known`, else kube-apiserver's; raises InternalError."""
        known = self.known(user, info)
        return known if known is not None else await self._asked(user, info)

    async def decide_anew(self, user: User, info: RequestInfo) -> Decision:
        """Return kube-apiserver's current decision, and cache it; ``system:masters`` may do everything. Raises InternalError."""
        return ALLOWED if MASTERS in user.groups else await self._asked(user, info)

    async def _asked(self, user: User, info: RequestInfo) -> Decision:
        decision = await self._ask(review_spec(user, info))
        if _size(info) <= _MAX_CACHED:
            self._answers.put(_key(user, info), decision, self._allowed_seconds if decision.allowed else self._denied_seconds)
        return decision

    async def _ask(self, spec: Object) -> Decision:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        try:
            answer = await ask(self._client, SUBJECT_ACCESS_REVIEWS, review, self._answered, pause_seconds=self._pause_seconds)
        except (StatusError, TransportError) as error:
            raise InternalError(f"cannot ask kube-apiserver whether {spec.get('user')} may do this: {error}") from error
        return Decision(dig(answer, "status", "allowed") is True, str(dig(answer, "status", "reason") or ""))


def _key(user: User, info: RequestInfo) -> _Question:
    if info.is_resource:
        return (
            user, info.verb, info.resource, info.namespace, info.name, info.subresource, info.group, info.version,
            info.label_selector, info.field_selector,
        )  # fmt: skip
    return (user, info.verb, info.path)


def _size(info: RequestInfo) -> int:
    """Return the number of characters that the client chose: long keys could fill the cache."""
    texts = (
        info.verb, info.path, info.group, info.version, info.namespace, info.resource, info.subresource, info.name,
        info.label_selector, info.field_selector,
    )  # fmt: skip
    return sum(map(len, texts))


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
    """Return the review's selectors: empty if either is malformed; without label operators that the review lacks."""
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
    """Return the error of a denied request in Go's words, which kubectl prints."""
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
