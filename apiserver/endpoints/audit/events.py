"""Encode audit events: ``audit.k8s.io/v1`` Event, one JSON object per line, fields in Go's order.

A request at level Metadata costs about 4 µs for two events, because repeated pieces (user, source) are encoded once. Of the
headers, only the client's name and addresses are read, so no secret is logged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import orjson

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.meta.users import User
from apiserver.endpoints.audit.policy import Level, Verdict
from apiserver.endpoints.requestinfo import REMEMBERED_LENGTH, RequestInfo

_MAX_KNOWN: Final = 4096
_SECOND: Final = 1_000_000_000
_UNKNOWN: Final = ("", "", "")


def encoded(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


class Pieces:
    """Caches encoded texts that a client's requests repeat."""

    def __init__(self) -> None:
        self._users: dict[User, str] = {}
        self._texts: dict[str, str] = {}
        self._decisions: dict[tuple[bool, str], str] = {}
        self._references: dict[tuple[str, ...], tuple[str, str, str]] = {}
        self._second = 0
        self._prefix = ""

    def user(self, user: User) -> str:
        """Return ``authentication.k8s.io/v1`` UserInfo."""
        known = self._users.get(user)
        if known is None:
            if len(self._users) >= _MAX_KNOWN:
                self._users.clear()
            known = self._users[user] = encoded(user_info(user))
        return known

    def text(self, value: str) -> str:
        """Return a JSON string, cached because it is likely to recur."""
        known = self._texts.get(value)
        if known is None:
            if len(self._texts) >= _MAX_KNOWN:
                self._texts.clear()
            known = self._texts[value] = encoded(value)
        return known

    def reference(self, info: RequestInfo) -> tuple[str, str, str]:
        """Return ``objectRef`` in three pieces; name and uid go after the first, the version after the second."""
        if len(info.path) > REMEMBERED_LENGTH:
            return _reference(info)
        key = (info.resource, info.namespace, info.group, info.version, info.subresource)
        known = self._references.get(key)
        if known is None:
            if len(self._references) >= _MAX_KNOWN:
                self._references.clear()
            known = self._references[key] = _reference(info)
        return known

    def decision(self, reason: str, *, allowed: bool) -> str:
        """Return the annotations of authorization."""
        known = self._decisions.get((allowed, reason))
        if known is None:
            if len(self._decisions) >= _MAX_KNOWN:
                self._decisions.clear()
            decision = "allow" if allowed else "forbid"
            known = f'"authorization.k8s.io/decision":"{decision}","authorization.k8s.io/reason":{encoded(reason)}'
            self._decisions[allowed, reason] = known
        return known

    def time(self, nanoseconds: int) -> str:
        """Return a ``MicroTime``."""
        rest = nanoseconds - self._second
        if not 0 <= rest < _SECOND:
            second = nanoseconds // _SECOND
            self._second, self._prefix = second * _SECOND, time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(second))
            rest = nanoseconds - self._second
        return f"{self._prefix}{rest // 1000:06d}Z"


def _reference(info: RequestInfo) -> tuple[str, str, str]:
    namespace = f',"namespace":{encoded(info.namespace)}' if info.namespace else ""
    return (
        f',"objectRef":{{"resource":{encoded(info.resource)}{namespace}',
        f',"apiGroup":{encoded(info.group)},"apiVersion":{encoded(info.version)}',
        f',"subresource":{encoded(info.subresource)}}}' if info.subresource else "}",
    )


def user_info(user: User) -> Object:
    """Return ``UserInfo`` as JSON."""
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return info


class Record:
    """Collects one request's data for the audit log and formats its events."""

    # Defaults as class attributes, because setting them per request costs time.
    impersonated: User | None = None
    constraint = ""
    status: Object | None = None
    """Only for errors and deletions."""
    started = False
    limit = 0
    """Largest total size of both objects in bytes, above which they are omitted; 0: unlimited."""
    _decision = ""
    _middle = ""
    _ref: tuple[str, str, str] | None = None
    _objects: dict[str, bytes] | None = None

    def __init__(
        self, verdict: Verdict, pieces: Pieces, audit_id: str, info: RequestInfo, received: int, uri: str, user: User | None, origin: str
    ) -> None:
        """Take the data that all events of the request share; ``origin`` comes from :mod:`~apiserver.endpoints.audit.sources`."""
        self.verdict = verdict
        self.pieces = pieces
        self._info = info
        self._moment = moment = pieces.time(received)
        self._received = f',"requestReceivedTimestamp":"{moment}","stageTimestamp":"'
        self._head = f'{verdict.head}{encoded(audit_id)},"stage":"'
        who = "{}" if user is None else pieces.user(user)
        self._what = f'","requestURI":{encoded(uri)},"verb":{pieces.text(info.verb)},"user":{who}'
        self._where = origin

    def act_as(self, user: User, constraint: str) -> None:
        """Record the impersonated user and the constraint."""
        self.impersonated, self.constraint, self._middle = user, constraint, ""

    def about(self, metadata: Object) -> None:
        """Add metadata that the URL lacks: a created object's name, a replaced one's uid and version."""
        said = metadata.get
        self._ref = (str(said("name") or ""), str(said("uid") or ""), str(said("resourceVersion") or ""))
        self._middle = ""

    def decided(self, *, allowed: bool, reason: str) -> None:
        """Record the decision of authorization."""
        self._decision = self.pieces.decision(reason, allowed=allowed)

    def request(self, obj: Any) -> None:  # noqa: ANN401 - any JSON value, or bytes of JSON
        """Keep the request's object (the bytes of a patch) if the level includes it."""
        self._keep("requestObject", obj, Level.REQUEST)

    def response(self, obj: Any) -> None:  # noqa: ANN401 - any JSON value, or bytes of JSON
        """Keep the response's object if the level includes it."""
        self._keep("responseObject", obj, Level.REQUEST_RESPONSE)

    def _keep(self, name: str, obj: Any, level: Level) -> None:  # noqa: ANN401 - as above
        if self.verdict.level < level:
            return
        if self.verdict.omit_managed_fields and name == "responseObject":
            obj = without_managed_fields(orjson.loads(obj) if isinstance(obj, bytes) else obj)
        elif self.verdict.omit_managed_fields and not isinstance(obj, bytes):
            obj = without_managed_fields(obj)
        self._objects = {**(self._objects or {}), name: obj.strip() if isinstance(obj, bytes) else encoded(obj).encode()}

    def first(self) -> str:
        """Return the event of the stage ``RequestReceived``."""
        middle = self._middle = self._said()
        return f'{self._head}RequestReceived{middle}{self._received}{self._moment}"}}'

    def event(self, stage: str, nanoseconds: int, code: int = 0, annotations: Mapping[str, str] | None = None) -> str:
        """Return the event of a later stage, without the line's end."""
        middle = self._middle or self._said()
        outcome = self._outcome(code) if self.status else f',"responseStatus":{{"metadata":{{}},"code":{code}}}'
        if self._objects:
            outcome, annotations = self._with_objects(outcome, annotations)
        end = self._annotations(annotations) if annotations else f',"annotations":{{{self._decision}}}}}' if self._decision else "}"
        return f'{self._head}{stage}{middle}{outcome}{self._received}{self.pieces.time(nanoseconds)}"{end}'

    def _said(self) -> str:
        acting = "" if self.impersonated is None else self._impersonation(self.impersonated)
        return f"{self._what}{acting}{self._where}{self._reference() if self._info.is_resource else ''}"

    def _annotations(self, others: Mapping[str, str]) -> str:
        rest = encoded(dict(others))[1:-1]
        return f',"annotations":{{{self._decision},{rest}}}}}' if self._decision else f',"annotations":{{{rest}}}}}'

    def _impersonation(self, user: User) -> str:
        text = f',"impersonatedUser":{self.pieces.user(user)}'
        if self.constraint:
            text += f',"authenticationMetadata":{{"impersonationConstraint":{encoded(self.constraint)}}}'
        return text

    def _reference(self) -> str:
        info = self._info
        before, after, end = self.pieces.reference(info)
        name, uid, version = self._ref or _UNKNOWN
        if info.name or name:
            before = f'{before},"name":{encoded(info.name or name)}'
        if uid:
            before = f'{before},"uid":{encoded(uid)}'
        return f'{before}{after},"resourceVersion":{encoded(version)}{end}' if version else f"{before}{after}{end}"

    def _outcome(self, code: int) -> str:
        kept = {key: value for key, value in (self.status or {}).items() if key in {"status", "message", "reason", "details"}}
        return f',"responseStatus":{encoded({"metadata": {}, **kept, "code": code})}'

    def _with_objects(self, text: str, annotations: Mapping[str, str] | None) -> tuple[str, Mapping[str, str] | None]:
        objects = self._objects or {}
        if self.limit and sum(map(len, objects.values())) > self.limit:
            return text, {**(annotations or {}), "audit.k8s.io/truncated": "true"}
        for name in ("requestObject", "responseObject"):
            if name in objects:
                text += f',"{name}":{objects[name].decode(errors="replace")}'
        return text, annotations


def without_managed_fields(obj: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return an object, a list of objects or a Table without ``managedFields``."""
    if not isinstance(obj, dict):
        return obj
    if dig(obj, "metadata", "managedFields") is not None:
        obj = {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
    if isinstance(obj.get("items"), list):
        obj = {**obj, "items": [without_managed_fields(each) for each in obj["items"]]}
    if obj.get("kind") == "Table" and isinstance(obj.get("rows"), list):
        rows = [{**each, "object": without_managed_fields(each.get("object"))} if isinstance(each, dict) else each for each in obj["rows"]]
        obj = {**obj, "rows": rows}
    return obj
