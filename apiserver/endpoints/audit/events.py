"""Events as they stand in the log: ``audit.k8s.io/v1`` Event, one JSON object a line, in Go's order of fields.

Joined from pieces that are encoded once (a user, a client's name, an address), because a request at level Metadata makes two events: both
together cost some 4 µs. What could be a secret never gets here: headers but the client's name are not read at all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from apiserver.apis.meta.objects import Object, dig
from apiserver.endpoints.audit.policy import Level, Stage, Verdict
from apiserver.endpoints.requestinfo import RequestInfo
from apiserver.endpoints.users import User

MAX_USER_AGENT: Final = 1024
_TRUNCATED: Final = "...TRUNCATED"
_MAX_KNOWN: Final = 4096


def encoded(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON; half a surrogate pair, which is no UTF-8, is escaped."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


class Pieces:
    """Encoded texts that come again with every request of a client."""

    def __init__(self) -> None:
        self._users: dict[int, tuple[User, str]] = {}
        self._texts: dict[str, str] = {}
        self._second = 0
        self._prefix = ""

    def user(self, user: User) -> str:
        """Return ``authentication.k8s.io/v1`` UserInfo. Users are the same object from one request to the next."""
        known = self._users.get(id(user))
        if known is not None and known[0] is user:
            return known[1]
        if len(self._users) >= _MAX_KNOWN:
            self._users.clear()
        text = encoded(user_info(user))
        self._users[id(user)] = (user, text)
        return text

    def text(self, value: str) -> str:
        """Return a JSON string that is likely to come again."""
        known = self._texts.get(value)
        if known is None:
            if len(self._texts) >= _MAX_KNOWN:
                self._texts.clear()
            known = self._texts[value] = encoded(value)
        return known

    def texts(self, values: Sequence[str]) -> str:
        """Return a JSON list of such strings."""
        return f"[{','.join([self.text(each) for each in values])}]"

    def time(self, nanoseconds: int) -> str:
        """Return a ``MicroTime``."""
        second, rest = divmod(nanoseconds, 1_000_000_000)
        if second != self._second:
            self._second, self._prefix = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{rest // 1000:06d}Z"


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
    """What is known of one request that is recorded; its events are made of it."""

    __slots__ = (
        "_decision", "_info", "_objects", "_pieces", "_received", "_ref", "_what", "_where", "audit_id", "constraint", "impersonated",
        "limit", "started", "status", "verdict",
    )  # fmt: skip

    def __init__(self, verdict: Verdict, pieces: Pieces, audit_id: str, info: RequestInfo, received: int) -> None:
        self.verdict = verdict
        self.audit_id = audit_id
        self.impersonated: User | None = None
        self.constraint = ""
        self.status: Object | None = None
        """Of an error; the code alone says it for a success."""
        self.started = False
        self.limit = 0
        """Bytes of request and response object together, beyond which both are left out; 0: none."""
        self._pieces = pieces
        self._info = info
        self._received = pieces.time(received)
        self._what = self._where = self._decision = ""
        self._ref: tuple[str, str, str] | None = None
        self._objects: dict[str, bytes] | None = None

    def describe(self, uri: str, user: User | None, addresses: Sequence[str], agent: str) -> None:
        """Take what every event of the request says."""
        pieces = self._pieces
        if len(agent) > MAX_USER_AGENT:
            agent = agent[:MAX_USER_AGENT] + _TRUNCATED
        who = "{}" if user is None else pieces.user(user)
        self._what = f'"requestURI":{encoded(uri)},"verb":{pieces.text(self._info.verb)},"user":{who}'
        where = f',"sourceIPs":{pieces.texts(addresses)}' if addresses else ""
        self._where = f'{where},"userAgent":{pieces.text(agent)}' if agent else where

    def about(self, metadata: Object) -> None:
        """Take from a request's object what its address does not say: the name of what is created, uid and version of what is replaced."""
        name, uid, version = (metadata.get(each) for each in ("name", "uid", "resourceVersion"))
        self._ref = (str(name or ""), str(uid or ""), str(version or ""))

    def decided(self, *, allowed: bool, reason: str) -> None:
        """Take what authorization said."""
        decision = "allow" if allowed else "forbid"
        self._decision = f'"authorization.k8s.io/decision":"{decision}","authorization.k8s.io/reason":{self._pieces.text(reason)}'

    def request(self, obj: Any) -> None:  # noqa: ANN401 - any JSON value, or bytes of JSON
        """Keep the request's object (of a patch: its bytes), if that is wanted."""
        self._keep("requestObject", obj, Level.REQUEST)

    def response(self, obj: Any) -> None:  # noqa: ANN401 - any JSON value, or bytes of JSON
        """Keep the answer's object, if that is wanted."""
        self._keep("responseObject", obj, Level.REQUEST_RESPONSE)

    def _keep(self, name: str, obj: Any, level: Level) -> None:  # noqa: ANN401 - as above
        if self.verdict.level < level:
            return
        if self.verdict.omit_managed_fields and name == "responseObject":
            obj = without_managed_fields(orjson.loads(obj) if isinstance(obj, bytes) else obj)
        elif self.verdict.omit_managed_fields and not isinstance(obj, bytes):
            obj = without_managed_fields(obj)
        self._objects = {**(self._objects or {}), name: obj.strip() if isinstance(obj, bytes) else encoded(obj).encode()}

    def event(self, stage: Stage, nanoseconds: int, code: int = 0, annotations: Mapping[str, str] | None = None) -> str:
        """Return one event, without the line's end."""
        text = (
            f'{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"{self.verdict.level.text}","auditID":{encoded(self.audit_id)},'
            f'"stage":"{stage.value}",{self._what}{self._impersonation(self.impersonated) if self.impersonated else ""}{self._where}'
        )
        if self._info.is_resource:
            text += self._reference()
        if code:
            text += self._outcome(code) if self.status else f',"responseStatus":{{"metadata":{{}},"code":{code}}}'
        if self._objects:
            text, annotations = self._with_objects(text, annotations)
        text += f',"requestReceivedTimestamp":"{self._received}","stageTimestamp":"{self._pieces.time(nanoseconds)}"'
        return text + self._annotations(annotations)

    def _annotations(self, others: Mapping[str, str] | None) -> str:
        if others:
            rest = encoded(dict(others))[1:-1]
            return f',"annotations":{{{self._decision},{rest}}}}}' if self._decision else f',"annotations":{{{rest}}}}}'
        return f',"annotations":{{{self._decision}}}}}' if self._decision else "}"

    def _impersonation(self, user: User) -> str:
        text = f',"impersonatedUser":{self._pieces.user(user)}'
        if self.constraint:
            text += f',"authenticationMetadata":{{"impersonationConstraint":{encoded(self.constraint)}}}'
        return text

    def _reference(self) -> str:
        info, text = self._info, self._pieces.text
        name, uid, version = self._ref or ("", "", "")
        reference = f',"objectRef":{{"resource":{text(info.resource)}'
        if info.namespace:
            reference += f',"namespace":{text(info.namespace)}'
        if info.name or name:
            reference += f',"name":{encoded(info.name or name)}'
        if uid:
            reference += f',"uid":{encoded(uid)}'
        reference += f',"apiGroup":{text(info.group)},"apiVersion":{text(info.version)}'
        if version:
            reference += f',"resourceVersion":{encoded(version)}'
        return f'{reference},"subresource":{text(info.subresource)}}}' if info.subresource else reference + "}"

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
