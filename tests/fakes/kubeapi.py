"""A fake API server with failures on request.

It supports every resource: get, list, watch (also streaming lists), create, update, merge patch (a strategic one merges conditions by type,
and no other lists), delete, ``status``, finalizers, optimistic locking, equality label selectors; no schemas, defaults or pages.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from aiohttp import web

from apiserver.apis.meta import errors, times
from apiserver.client.config import Config
from apiserver.client.rest import STRATEGIC_MERGE_PATCH

SIGNING_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
DECISIONS = ("Approved", "Denied")
Object = dict[str, Any]
Key = tuple[str, str, str]
T = TypeVar("T")


def copied(obj: T) -> T:
    """Return a copy of JSON data, four times as fast as ``copy.deepcopy``."""
    found: Any = obj
    if isinstance(obj, dict):
        found = {key: copied(value) for key, value in obj.items()}
    elif isinstance(obj, list):
        found = [copied(each) for each in obj]
    return cast("T", found)


class FakeAPI:
    """A fake kube-apiserver's state and faults; serve it with :meth:`serving`."""

    def __init__(self) -> None:
        self.revision = 1
        self.objects: dict[Key, Object] = {}
        """By (collection path without namespace, namespace, name)."""
        self.log: list[tuple[int, str, Key, Object, Object | None]] = []
        """Revision, type, key, the object, and its previous version for watches with a selector."""
        self.oldest = 0
        self.refusals: list[errors.StatusError | web.Response] = []
        self.streaming_lists = True
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.writes: list[tuple[str, str, Any]] = []
        self.admit: Callable[[str, Object], None] | None = None
        """Gets (path, object) before a create is stored; may change it or raise a StatusError."""
        self.judge: Callable[[str, str, Object, Object], None] | None = None
        """Gets (bearer token, collection path, old, new) before a status is stored; may raise a StatusError."""
        self.authorize: Callable[[str, str, Mapping[str, str]], bool] | None = None
        """Whether a request (method, path, query) is allowed; others are recorded in ``forbidden``."""
        self.forbidden: list[tuple[str, str]] = []
        self.selected_anyway: Callable[[Object], bool] = lambda _: False
        """Every selector selects these: a malformed field may be the selected one."""
        self.discovery: dict[str, list[Object]] = {}
        """Discovery documents by group version path (``/api/v1``)."""
        self.users: dict[str, Object] = {}
        """By bearer token: ``username``, ``groups``, ``extra``, for CertificateSigningRequests."""
        self._changed = asyncio.Condition()
        self._generation = itertools.count()
        self._cut = 0
        self._drop = False
        self._repeat = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Config]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            yield Config(server=f"http://127.0.0.1:{port}", token="secret")
        finally:
            await self.cut()
            await runner.cleanup()

    async def cut(self) -> None:
        """End every watch's connection in the middle of the response, without a message."""
        self._cut += 1
        await self._wake()

    async def expire(self) -> None:
        """End all watches and drop the history: watches from older revisions must list again."""
        self.oldest = self.revision
        await self.cut()

    def drop_events(self, *, on: bool) -> None:
        """While on, changes cause no watch events."""
        self._drop = on

    def repeat_events(self, *, on: bool) -> None:
        """While on, send each event twice; between the two, the event before it if that is of the same collection."""
        self._repeat = on

    async def put(self, collection: str, obj: Object) -> Object:
        meta = obj["metadata"]
        key = (collection, meta.get("namespace", ""), meta["name"])
        return await self._store(key, copied(obj))

    async def edit(self, collection: str, namespace: str, name: str, change: Callable[[Object], None]) -> Object:
        key = (collection, namespace, name)
        obj = copied(self.objects[key])
        change(obj)
        return await self._store(key, obj)

    async def remove(self, collection: str, namespace: str, name: str) -> None:
        await self._remove((collection, namespace, name))

    def all(self, collection: str) -> list[Object]:
        return [each for (path, _, _), each in sorted(self.objects.items(), key=lambda pair: pair[0]) if path == collection]

    def get(self, collection: str, namespace: str, name: str) -> Object:
        return self.objects[(collection, namespace, name)]

    async def _store(self, key: Key, obj: Object) -> Object:
        self.revision += 1
        meta = obj.setdefault("metadata", {})
        old = self.objects.get(key)
        meta.setdefault("uid", (old or {}).get("metadata", {}).get("uid") or str(uuid.uuid4()))
        meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        meta["resourceVersion"] = str(self.revision)
        if old is None or old.get("spec") != obj.get("spec"):
            meta["generation"] = int((old or {}).get("metadata", {}).get("generation") or 0) + 1
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            self.objects[key] = obj
            await self._remove(key)
            return obj
        self.objects[key] = obj
        await self._log("MODIFIED" if old else "ADDED", key, obj, old)
        return obj

    async def _remove(self, key: Key) -> None:
        obj = copied(self.objects.pop(key))
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        await self._log("DELETED", key, obj)

    async def _log(self, kind: str, key: Key, obj: Object, old: Object | None = None) -> None:
        if not self._drop:
            entry = (self.revision, kind, key, copied(obj), old)
            self.log.append(entry)
            if self._repeat:
                if len(self.log) > 1 and self.log[-2][2][0] == key[0]:
                    self.log.append(self.log[-2])
                self.log.append(entry)
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.query)))
        try:
            if self.authorize and not self.authorize(request.method, request.path, request.query):
                self.forbidden.append((request.method, request.path))
                raise errors.Forbidden(f"{request.method} {request.path} is not allowed")
            if self.refusals:
                refusal = self.refusals.pop(0)
                if isinstance(refusal, web.Response):
                    return refusal
                raise refusal
            return await self._serve(request)
        except errors.StatusError as error:
            headers = {"Retry-After": str(error.details.retry_after_seconds)} if error.details.retry_after_seconds else {}
            return web.json_response(error.to_json(), status=error.code, headers=headers)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if request.path in self.discovery:
            return web.json_response({"kind": "APIResourceList", "resources": self.discovery[request.path]})
        if request.path.count("/") < (4 if request.path.startswith("/apis") else 3):
            raise errors.NotFound("the server could not find the requested resource")
        collection, namespace, name, subresource = _split(request.path)
        if request.method == "GET" and not name:
            if request.query.get("watch") == "true":
                return await self._watch(request, collection, namespace)
            return self._list(request, collection, namespace)
        if request.method == "POST":
            made = await request.json()
            if collection == SELF_REVIEWS:
                user = self.users.get(request.headers.get("Authorization", "").removeprefix("Bearer "), {"username": "system:admin"})
                return web.json_response({**made, "status": {"userInfo": user}}, status=201)
            if collection == SIGNING_REQUESTS:
                _stamp(made, self.users.get(request.headers.get("Authorization", "").removeprefix("Bearer "), {"username": "system:admin"}))
            return web.json_response(await self._create(collection, namespace, made), status=201)
        key = (collection, namespace, name)
        if key not in self.objects:
            plural = collection.rsplit("/", 1)[-1]
            raise errors.NotFound(f'{plural} "{name}" not found', errors.Details(name=name, kind=plural))
        if request.method == "GET":
            return web.json_response(self.objects[key])
        if request.method == "DELETE":
            return web.json_response(await self._delete(key, await request.json() if request.can_read_body else {}))
        body = await request.json()
        if request.content_type == STRATEGIC_MERGE_PATCH:
            body = _with_conditions(self.objects[key], body)
        self.writes.append((request.method, request.path, body))
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return web.json_response(await self._write(key, subresource, request.method, body, token))

    async def _create(self, collection: str, namespace: str, obj: Object) -> Object:
        meta = obj.setdefault("metadata", {})
        meta["namespace"] = namespace
        name = meta.setdefault("name", meta.get("generateName", "") + uuid.uuid4().hex[:5])
        self.writes.append(("POST", f"{collection}/{namespace}", obj))
        if (collection, namespace, name) in self.objects:
            raise errors.AlreadyExists(f'{collection} "{name}" already exists')
        if self.admit:
            self.admit(collection, obj)
        return await self._store((collection, namespace, name), obj)

    async def _write(self, key: Key, subresource: str, method: str, body: Object, token: str) -> Object:
        old = self.objects[key]
        new = _merged(old, body) if method == "PATCH" else copied(body)
        given = (body.get("metadata") or {}).get("resourceVersion")
        if given and given != old["metadata"]["resourceVersion"]:
            raise errors.Conflict(f'Operation cannot be fulfilled on "{key[2]}": the object has been modified')
        if (uid := (body.get("metadata") or {}).get("uid")) and uid != old["metadata"]["uid"]:
            raise errors.Conflict(f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}")
        if key[0] == SIGNING_REQUESTS:
            new = _decided(old, new, subresource)
        elif subresource in ("status", "resize"):
            new = {**copied(old), "status": new.get("status")} if subresource == "status" else _resized(old, body)
            if self.judge:
                self.judge(token, key[0], old, new)
        if new == old:
            return old
        return await self._store(key, new)

    async def _delete(self, key: Key, options: Object) -> Object:
        obj = copied(self.objects[key])
        self.writes.append(("DELETE", "/".join(key), options))
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != obj["metadata"]["uid"]:
            raise errors.Conflict("Precondition failed: UID")
        version = (options.get("preconditions") or {}).get("resourceVersion")
        if version and version != obj["metadata"]["resourceVersion"]:
            raise errors.Conflict("Precondition failed: ResourceVersion")
        grace = options.get("gracePeriodSeconds", (obj.get("spec") or {}).get("terminationGracePeriodSeconds", 0))
        if not (obj.get("spec") or {}).get("nodeName") or (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            grace = 0  # ended pods, and pods without a kubelet, go at once
        if obj["metadata"].get("finalizers") or grace:
            if not obj["metadata"].get("deletionTimestamp"):
                obj["metadata"]["deletionTimestamp"] = times.to_rfc3339(datetime.now(UTC) + timedelta(seconds=grace))
                if grace:
                    obj["metadata"]["deletionGracePeriodSeconds"] = grace
                await self._store(key, obj)
            return obj
        await self._remove(key)
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _list(self, request: web.Request, collection: str, namespace: str) -> web.Response:
        items = [each for each in self.all(collection) if self._selected(request, namespace, each)]
        metadata: Object = {"resourceVersion": str(self.revision)}
        limit, start = int(request.query.get("limit") or 0), int(request.query.get("continue") or 0)
        if limit and start + limit < len(items):
            metadata["continue"] = str(start + limit)
        items = items[start : start + limit] if limit else items
        return web.json_response({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items})

    async def _watch(self, request: web.Request, collection: str, namespace: str) -> web.StreamResponse:
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and not self.streaming_lists:
            raise errors.Invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch")
        since = int(request.query.get("resourceVersion") or 0)
        if since and since < self.oldest:
            raise errors.Expired("too old resource version")
        cut = self._cut
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        position = next((at for at, entry in enumerate(self.log) if entry[0] > (self.revision if initial else since)), len(self.log))
        if initial:
            for each in self.all(collection):
                if self._selected(request, namespace, each):
                    await _send(response, "ADDED", each)
            end = {"resourceVersion": str(self.revision), "annotations": {"k8s.io/initial-events-end": "true"}}
            await _send(response, "BOOKMARK", {"metadata": end})
        while cut == self._cut:
            while position < len(self.log) and cut == self._cut:
                _, kind, key, obj, old = self.log[position]
                position += 1
                if key[0] == collection and (event := self._event(request, namespace, kind, obj, old)):
                    await _send(response, *event)
            async with self._changed:
                while cut == self._cut and position >= len(self.log):
                    await self._changed.wait()
        if request.transport is not None:
            request.transport.abort()
        return response

    def _selected(self, request: web.Request, namespace: str, obj: Object) -> bool:
        return self.selected_anyway(obj) or _selected(request, namespace, obj)

    def _event(self, request: web.Request, namespace: str, kind: str, obj: Object, old: Object | None) -> tuple[str, Object] | None:
        before = old is not None and self._selected(request, namespace, old)
        if self._selected(request, namespace, obj):
            return "ADDED" if kind == "MODIFIED" and not before else kind, obj
        if old is None or not before:
            return None
        return "DELETED", {**old, "metadata": {**old["metadata"], "resourceVersion": obj["metadata"]["resourceVersion"]}}


def _stamp(request: Object, user: Object) -> None:
    for field in ("username", "uid", "groups", "extra"):
        request["spec"].pop(field, None)
    request["spec"] |= copied(user)
    request["status"] = {}


def _decided(old: Object, new: Object, subresource: str) -> Object:
    before, after = (each.get("status") or {} for each in (old, new))
    conditions = after.get("conditions") or []
    kinds = [each["type"] for each in conditions]
    if subresource == "approval":
        status = {**before, "conditions": conditions}
    elif subresource == "status":
        if [each for each in kinds if each in DECISIONS] != [
            each["type"] for each in before.get("conditions") or [] if each["type"] in DECISIONS
        ]:
            raise errors.Invalid("status.conditions: Forbidden: updates may not add a condition of type Approved or Denied")
        if before.get("certificate") and after.get("certificate") != before["certificate"]:
            raise errors.Invalid("status.certificate: Forbidden: updates may not modify certificate content once set")
        status = after
    else:
        status = before
    if len(set(kinds)) != len(kinds) or set(kinds) >= set(DECISIONS):
        raise errors.Invalid("status.conditions: Invalid value: Approved and Denied conditions are mutually exclusive")
    return {**copied(old), "status": status}


def _resized(pod: Object, body: Object) -> Object:
    new = copied(pod)
    for wanted in body["spec"]["containers"]:
        (container,) = (each for each in new["spec"]["containers"] if each["name"] == wanted["name"])
        for kind, amounts in wanted["resources"].items():
            container["resources"][kind] |= amounts
    return new


async def _send(response: web.StreamResponse, kind: str, obj: Object) -> None:
    await response.write(json.dumps({"type": kind, "object": obj}).encode() + b"\n")


def _split(path: str) -> tuple[str, str, str, str]:
    parts = path.strip("/").split("/")
    head, rest = (parts[:3], parts[3:]) if parts[0] == "apis" else (parts[:2], parts[2:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    rest = [*rest, "", ""]
    return "/" + "/".join([*head, rest[0]]), namespace, rest[1], rest[2]


def _selected(request: web.Request, namespace: str, obj: Object) -> bool:
    if namespace and obj["metadata"].get("namespace") != namespace:
        return False
    labels = obj["metadata"].get("labels") or {}
    for each in filter(None, request.query.get("labelSelector", "").split(",")):
        key, _, value = each.partition("=")
        if labels.get(key) is None or (value and labels[key] != value.lstrip("=")):
            return False
    for each in filter(None, request.query.get("fieldSelector", "").split(",")):
        key, _, value = each.partition("=")
        found: Any = obj
        for step in key.split("."):
            found = (found or {}).get(step)
        if found != value:
            return False
    return True


def _with_conditions(old: Object, patch: Object) -> Object:
    given = {each["type"]: each for each in (patch.get("status") or {}).get("conditions") or ()}
    if not given:
        return patch
    kept = [{**each, **given.pop(each["type"], {})} for each in (old.get("status") or {}).get("conditions") or ()]
    return {**patch, "status": {**patch["status"], "conditions": [*kept, *given.values()]}}


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = copied(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
