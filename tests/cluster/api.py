"""Requests to the cluster's API, and waits by a watch.

A request takes 1 ms, a run of kubectl 100 ms. A wait lists, then watches, and lists again when the watch ends, because tests kill servers.
Timeouts count given seconds (tests/given_time.py).
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import json
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from apiserver.apis.core import resources as core
from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import (
    NamespacedName,
    Object,
    condition,
    dig,
    generation_of,
    key_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    without_managed_fields,
)
from apiserver.apis.meta.resources import Resource
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.client import watching
from apiserver.client.config import Config
from apiserver.client.rest import MAX_BODY_BYTES, MERGE_PATCH, Client, Patch, TransportError
from apiserver.client.transport import ExchangeFailed, transport_error
from tests import booting
from tests.cluster import resources
from tests.given_time import LOOK_SECONDS, Deadline

_T = TypeVar("_T")
Check: TypeAlias = Callable[[Object], Any]
ListCheck: TypeAlias = Callable[[list[Object]], Any]

JSON_PATCH: Final = "application/json-patch+json"
WATCH_SECONDS: Final = 30
IDLE_SECONDS: Final = 35.0
PAUSE_SECONDS: Final = 0.25


def is_true(kind: str, status: str = "True") -> Check:
    """Return a check of objects: condition ``kind`` has ``status``, and is not older than the last edit."""

    def check(obj: Object) -> bool:
        found = condition(dig(obj, "status", "conditions"), kind)
        return (
            found is not None
            and found.get("status") == status
            and found.get("observedGeneration", generation_of(obj)) >= generation_of(obj)
        )

    return check


def has(kind: str, **fields: str) -> Check:
    return lambda obj: fields.items() <= condition_of(obj, kind).items()


def condition_of(obj: Object, kind: str) -> Object:
    return dict(condition(dig(obj, "status", "conditions"), kind) or {})


def has_taken_edits(vm: Object) -> bool:
    """Return whether the guest runs with the machine's spec, all edits included."""
    return dig(vm, "status", "observedGeneration") == generation_of(vm) and "running" not in vm["status"]


def in_phase(*phases: str) -> Check:
    return lambda obj: dig(obj, "status", "phase") in phases


def is_rolled_out(workload: Object) -> bool:
    """Return whether ``kubectl rollout status`` would end."""
    status = workload.get("status") or {}
    if status.get("observedGeneration", 0) < generation_of(workload):
        return False
    if (desired := status.get("desiredNumberScheduled")) is not None:
        return bool(min(status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0)) >= desired)
    updated = status.get("updatedReplicas", 0)
    return (
        not has("Progressing", reason="ProgressDeadlineExceeded")(workload)
        and updated >= workload["spec"]["replicas"]
        and status.get("replicas", 0) <= updated <= status.get("availableReplicas", 0)
    )


@dataclass(frozen=True)
class Api:
    """A client of an API server, with a kubeconfig's user and a default namespace. Thread-safe."""

    kubeconfig: Path
    namespace: str

    def within(self, namespace: str) -> Api:
        return replace(self, namespace=namespace)

    def get(self, resource: str, name: str) -> Object:
        found = resources.named(resource)
        return self._ask(lambda client: client.get(found, name, self._place(found)))

    def find(self, resource: str, name: str) -> Object | None:
        try:
            return self.get(resource, name)
        except errors.NotFound:
            return None

    def list(self, resource: str, *, label_selector: str = "", field_selector: str = "") -> list[Object]:
        found = resources.named(resource)
        listed = self._ask(
            lambda client: client.list(found, self._place(found), label_selector=label_selector, field_selector=field_selector)
        )
        items: list[Object] = listed["items"]
        return items

    def create(self, manifest: Object) -> Object:
        booting.begin_with(manifest)
        found = resources.of(manifest)
        return self._ask(lambda client: client.create(found, manifest, namespace_of(manifest) or self._place(found)))

    def try_create(self, manifest: Object) -> Object:
        found = resources.of(manifest)
        answer: Object = self.request("POST", f"{found.path(self._place(found))}?dryRun=All", body=manifest)
        return answer

    def apply(self, *manifests: Object) -> builtins.list[Object]:
        """Create objects, or merge manifests into existing ones; return the objects."""
        return [self._applied(each) for each in manifests]

    def replace(self, manifest: Object) -> Object:
        """Replace an object by PUT, and return the new one; members that the manifest lacks are removed."""
        found = resources.of(manifest)
        place = namespace_of(manifest) or self._place(found)
        body = {**manifest, "metadata": {"namespace": place, **manifest["metadata"]}} if place else manifest
        return self._ask(lambda client: client.update(found, body))

    def patch(self, resource: str, name: str, patch: Patch, *, subresource: str | None = None) -> Object:
        found = resources.named(resource)
        kind = JSON_PATCH if isinstance(patch, builtins.list) else MERGE_PATCH
        return self._ask(lambda client: client.patch(found, name, patch, self._place(found), subresource=subresource, content_type=kind))

    def delete(
        self, resource: str, name: str, *, grace_period: int | None = None, propagation: str = "Background", timeout: float | None = None
    ) -> None:
        found = resources.named(resource)
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace_period is not None:
            options["gracePeriodSeconds"] = grace_period
        uid = uid_of(self.get(resource, name)) if timeout is not None else ""
        self._ask(lambda client: client.delete(found, name, self._place(found), options=options))
        if timeout is not None:
            self.gone(resource, name, uid=uid, timeout=timeout)

    def delete_all(self, *kinds: str, timeout: float, grace_period: int | None = None) -> None:
        for each in kinds:
            for one in self.list(each):
                try:
                    self.delete(each, name_of(one), grace_period=grace_period)
                except errors.NotFound:
                    continue
        for each in kinds:
            self.until_list(each, lambda left: not left, timeout=timeout, what=f"the end of all {each}")

    def verb(self, name: str, verb: str, **body: Any) -> Object:
        answer = self.request("PUT", VIRTUAL_MACHINES.path(self.namespace, name, verb), body=body)
        return answer if isinstance(answer, dict) else {}

    def migrate(self, name: str, **body: Any) -> str:
        return name_of(self.verb(name, "migrate", **body))

    def request(self, method: str, path: str, *, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        return self._ask(lambda client: client.request(method, path, body=body, headers=headers))

    def until(self, resource: str, name: str, check: Check, *, timeout: float, what: str) -> Object:
        """Wait until the object exists and ``check`` is true, and return it; a LookupError in ``check`` counts as false.

        After ``timeout`` seconds it raises AssertionError, which begins with ``what``.
        """
        key = NamespacedName(self._place(resources.named(resource)) or "", name)

        def chosen(objects: Objects) -> Object | None:
            found = objects.get(key)
            return found if found is not None and check(found) else None

        return self._until(resource, chosen, timeout=timeout, what=what, field_selector=f"metadata.name={name}")

    def until_list(
        self, resource: str, check: ListCheck, *, timeout: float, what: str, label_selector: str = "", field_selector: str = ""
    ) -> builtins.list[Object]:

        def chosen(objects: Objects) -> list[Object] | None:
            found = [objects[key] for key in sorted(objects)]
            return found if check(found) else None

        return self._until(resource, chosen, timeout=timeout, what=what, label_selector=label_selector, field_selector=field_selector)

    def gone(self, resource: str, name: str, *, timeout: float, uid: str = "") -> None:
        key = NamespacedName(self._place(resources.named(resource)) or "", name)
        known = [uid] if uid else []

        def is_gone(objects: Objects) -> bool | None:
            if (found := objects.get(key)) is None:
                return True
            known.append(uid_of(found))
            return uid_of(found) != known[0] or None

        self._until(resource, is_gone, timeout=timeout, what=f"the end of {resource}/{name}", field_selector=f"metadata.name={name}")

    def ready(self, resource: str, name: str, *, timeout: float) -> Object:
        found = self.until(resource, name, is_true("Ready"), timeout=timeout, what=f"{resource}/{name} is ready")
        if resources.named(resource) == VIRTUAL_MACHINES:
            booting.SLOTS.end_soon()
        return found

    def rolled_out(self, *workloads: str, timeout: float) -> None:
        """``workloads``: ``deployment/virt-api``."""
        for each in workloads:
            resource, _, name = each.partition("/")
            self.until(resource, name, is_rolled_out, timeout=timeout, what=f"the rollout of {each}")

    def log(self, pod: str, *, container: str = "", timestamps: bool = False) -> str:
        path = core.PODS.path(self.namespace, pod, "log")
        query = {"timestamps": str(timestamps).lower()} | ({"container": container} if container else {})
        return self._ask(lambda client: _text(client, path, query))

    def token(self, account: str) -> str:
        path = resources.named("serviceaccounts").path(self.namespace, account, "token")
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.request("POST", path, body=asked)["status"]["token"])

    def events(self, reason: str, *, of: str = "", timeout: float) -> builtins.list[Object]:
        chosen = f"reason={reason}" + (f",involvedObject.name={of}" if of else "")
        return self.until_list("events", bool, timeout=timeout, what=f"an Event {reason} {of}".strip(), field_selector=chosen)

    def _until(
        self,
        resource: str,
        chosen: Callable[[Objects], _T | None],
        *,
        timeout: float,
        what: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> _T:
        found = resources.named(resource)
        last, missing = Seen({}, "there was no answer"), ""
        with self._looks(Collection(found, self._place(found), label_selector, field_selector), timeout) as looks:
            for last in looks:
                try:
                    if not last.trouble and (held := chosen(last.objects)) is not None:
                        return held
                except LookupError as error:
                    missing = f"the check found nothing at {error}"
                else:
                    missing = ""
        raise AssertionError(f"{what}: not within {timeout:.0f} s; {told(last._replace(trouble=last.trouble or missing))}")

    @contextmanager
    def _looks(self, collection: Collection, timeout: float) -> Iterator[Iterator[Seen]]:
        deadline = Deadline(timeout)
        connection = _connection(self.kubeconfig)
        seen: queue.SimpleQueue[Seen | None] = queue.SimpleQueue()
        following = connection.start(_follow(connection.client, collection, seen.put))
        following.add_done_callback(lambda _: seen.put(None))

        def looks() -> Iterator[Seen]:
            while (left := deadline.left) > 0:
                try:
                    look = seen.get(timeout=min(left, LOOK_SECONDS))
                except queue.Empty:
                    continue
                if look is None:
                    following.result()
                else:
                    yield look

        try:
            yield looks()
        finally:
            following.cancel()

    def _applied(self, manifest: Object) -> Object:
        try:
            return self.create(manifest)
        except errors.AlreadyExists:
            found = resources.of(manifest)
            place = namespace_of(manifest) or self._place(found)
            return self._ask(lambda client: client.patch(found, name_of(manifest), manifest, place))

    def _place(self, resource: Resource) -> str | None:
        return (self.namespace or None) if resource.namespaced else None

    def _ask(self, question: Callable[[Client], Coroutine[Any, Any, _T]]) -> _T:
        connection = _connection(self.kubeconfig)
        return connection.run(question(connection.client))


Objects: TypeAlias = Mapping[NamespacedName, Object]


class Seen(NamedTuple):
    """One look at a collection: its objects and, if ``trouble`` is not empty, the error since which they may be old."""

    objects: Objects
    trouble: str = ""


class Collection(NamedTuple):
    resource: Resource
    namespace: str | None
    label_selector: str
    field_selector: str


def told(seen: Seen) -> str:
    objects = [json.dumps(without_managed_fields(each)) for each in seen.objects.values()]
    last = f"last seen: {', '.join(objects) or 'nothing'}"
    return f"{last}; then {seen.trouble}" if seen.trouble else last


async def _text(client: Client, path: str, query: Mapping[str, str]) -> str:
    try:
        with await client.stream("GET", path, params=query) as response:
            return (await response.read(MAX_BODY_BYTES)).decode(errors="replace")
    except (ExchangeFailed, TimeoutError, OSError) as error:
        raise transport_error("GET", path, error) from error


async def _follow(client: Client, collection: Collection, tell: Callable[[Seen], None]) -> None:
    resource, namespace, labels, fields = collection
    objects: dict[NamespacedName, Object] = {}
    while True:
        try:
            listed = await client.list(resource, namespace, label_selector=labels, field_selector=fields)
            objects = {key_of(each): each for each in listed["items"]}
            tell(Seen(objects))
            watch = client.watch(
                resource,
                namespace,
                resource_version=resource_version_of(listed),
                label_selector=labels,
                field_selector=fields,
                timeout_seconds=WATCH_SECONDS,
                idle_seconds=IDLE_SECONDS,
            )
            async with aclosing(watch) as events:
                async for event in events:
                    if event.type != watching.BOOKMARK:
                        objects = _changed(objects, event)
                        tell(Seen(objects))
        except (errors.StatusError, TransportError) as error:
            if not _passes(error):
                raise
            tell(Seen(objects, f"{type(error).__name__}: {error}"))
        await asyncio.sleep(PAUSE_SECONDS)


def _changed(objects: Objects, event: watching.WatchEvent) -> dict[NamespacedName, Object]:
    left = {key: each for key, each in objects.items() if key != key_of(event.object)}
    return left if event.type == watching.DELETED else {**left, key_of(event.object): event.object}


def _passes(error: errors.StatusError | TransportError) -> bool:
    return isinstance(error, TransportError) or error.code in (410, 429) or error.code >= 500


class _Connection:
    def __init__(self, config: Config) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="requests of tests", daemon=True).start()
        self.client = self.run(Client(config, user_agent="kubevirt-tests").__aenter__())

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_lock: Final = threading.Lock()


def _connection(kubeconfig: Path) -> _Connection:
    with _lock:
        return _connected(kubeconfig, kubeconfig.stat().st_mtime_ns)


@functools.cache
def _connected(kubeconfig: Path, changed: int) -> _Connection:
    del changed
    return _Connection(Config.from_kubeconfig(kubeconfig))
