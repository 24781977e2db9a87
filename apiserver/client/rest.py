"""Requests to an API server with plain JSON.

Server errors are :class:`~apiserver.apis.meta.errors.StatusError`, by reason; without a response,
:class:`TransportError`. The client only repeats requests rejected with ``Retry-After`` (429 and 5xx, as client-go), and
once after 401 with a new token.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeAlias
from urllib.parse import urlencode, urlsplit

from apiserver.apis.meta import errors
from apiserver.apis.meta.objects import Json, Object, dig, name_of, namespace_of
from apiserver.apis.meta.resources import Resource
from apiserver.client import watching
from apiserver.client.config import Config
from apiserver.client.connections import Connections, Origin, Response
from apiserver.client.credentials import Certificates, Token
from apiserver.client.exchange import Timeouts
from apiserver.client.transport import ExchangeFailed, TransportError, transport_error
from apiserver.client.watching import WatchEvent

__all__ = ["Client", "TransportError", "WatchEvent"]

REQUEST_SECONDS: Final = 60.0
"""As in kube-apiserver."""
CONNECT_SECONDS: Final = 10.0
ANSWER_SECONDS: Final = 20.0
"""For the head of a watch with a limit on silence; requests wait up to 15 s in kube-apiserver's queues."""
KEEP_SECONDS: Final = 60.0
"""Life of an idle connection."""
PAGE: Final = 500
"""client-go's."""
MAX_BODY_BYTES: Final = 256 << 20
"""500 objects of half a MiB."""
MAX_ERROR_BYTES: Final = 1 << 20
MAX_RETRIES: Final = 5
MAX_RETRY_SECONDS: Final = 30.0
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
Patch: TypeAlias = dict[str, Any] | list[Any]
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
"""For Kubernetes' own kinds: merges conditions by type."""


class Client:
    """One API server and user. An async context manager; safe for concurrent tasks."""

    def __init__(
        self,
        config: Config,
        *,
        user_agent: str,
        timeout_seconds: float = REQUEST_SECONDS,
        max_connections: int = 64,
        max_retries: int = MAX_RETRIES,
    ) -> None:
        """``max_retries``: after a response with ``Retry-After``."""
        self.config = config
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._timeouts = Timeouts(timeout_seconds, CONNECT_SECONDS)
        self._max_connections = max_connections
        self._max_retries = max_retries
        self._server = server = urlsplit(config.server)
        self._address = (server.hostname or "", server.port or (443 if server.scheme == "https" else 80))
        self._token = Token(config, time.monotonic)
        self._certificates = Certificates(config, time.monotonic)
        self._connections: Connections | None = None
        self.observe: Callable[[str, int, float], None] | None = None
        """Called per request with method, code (0: no response) and seconds to the head."""

    async def __aenter__(self) -> Self:
        self._connections = Connections(keep_seconds=KEEP_SECONDS, limit=self._max_connections)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def give_up(self, path: str, seconds: float) -> None:
        """Fail each request or watch if its path begins with ``path`` and nothing came for so long: TransportError."""
        if self._connections is not None:
            self._connections.give_up(self._server.path + path, seconds)

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Object:
        """Return one object. Raises StatusError, such as NotFound, or TransportError."""
        return await self._object("GET", resource.path(namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        trim: Callable[[Object], Object] | None = None,
    ) -> Object:
        """Return the whole List, read in pages of ``limit`` objects (0: ``PAGE``); items have ``kind`` and ``apiVersion``.

        ``trim`` returns what to keep of an object. After an expired continue token, list again without pages. Raises
        StatusError, TransportError.
        """
        query = _query(labelSelector=label_selector, fieldSelector=field_selector)
        first = _query(**query, resourceVersion=resource_version, limit=str(limit or PAGE))
        path = resource.path(namespace)
        page = await self._object("GET", path, params=first)
        items = _kept(page, trim)
        while token := dig(page, "metadata", "continue"):
            try:
                page = await self._object("GET", path, params={**query, "limit": str(limit or PAGE), "continue": token})
            except errors.Expired:
                page = await self._object("GET", path, params=query)
                items = []
            items += _kept(page, trim)
        metadata = {key: value for key, value in (page.get("metadata") or {}).items() if key not in ("continue", "remainingItemCount")}
        for each in items:  # items of typed lists lack both
            each.setdefault("apiVersion", resource.api_version)
            each.setdefault("kind", resource.kind)
        return {**page, "metadata": metadata, "items": items}

    async def page(self, resource: Resource, namespace: str, *, field_selector: str, limit: int) -> tuple[Object, ...]:
        """Return at most the first ``limit`` objects that a field selector selects, perhaps without ``kind`` and ``apiVersion``.

        Raises StatusError, TransportError.
        """
        query = _query(fieldSelector=field_selector, limit=str(limit))
        return tuple(_kept(await self._object("GET", resource.path(namespace), params=query), None))

    async def create(self, resource: Resource, obj: Object, namespace: str | None = None, *, field_manager: str = "") -> Object:
        """Create an object (``namespace`` None: in its own namespace) and return it as stored.

        Raises StatusError, such as AlreadyExists, or TransportError.
        """
        path = resource.path(_namespace(resource, obj, namespace))
        return await self._object("POST", path, params=_query(fieldManager=field_manager), body=obj)

    async def update(self, resource: Resource, obj: Object, *, subresource: str | None = None, field_manager: str = "") -> Object:
        """Replace an object and return the result. Raises StatusError, such as Conflict, or TransportError."""
        path = resource.path(_namespace(resource, obj, None), name_of(obj), subresource)
        return await self._object("PUT", path, params=_query(fieldManager=field_manager), body=obj)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Patch,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
        field_manager: str = "",
    ) -> Object:
        """Apply a patch and return the result. Raises StatusError (Conflict: a merge patch has an old resourceVersion), TransportError."""
        path = resource.path(namespace, name, subresource)
        headers = {"Content-Type": content_type}
        return await self._object("PATCH", path, params=_query(fieldManager=field_manager), body=patch, headers=headers)

    async def delete(self, resource: Resource, name: str, namespace: str | None = None, *, options: Object | None = None) -> Object:
        """Delete an object; return the Status, or the object held by finalizers or grace period. Raises StatusError, TransportError."""
        return await self._object("DELETE", resource.path(namespace, name), body=options)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        initial_events: bool = False,
        idle_seconds: float | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after ``resource_version`` until the server ends the watch, after about ``timeout_seconds``.

        Without ``resource_version``, existing objects come first, ADDED; with ``initial_events`` always, and then a BOOKMARK with
        ``INITIAL_EVENTS_END``. Raises StatusError, such as Expired, and TransportError, also after ``idle_seconds`` without input. Use
        ``contextlib.aclosing`` to leave early.
        """
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(timeout_seconds)}
        params |= {"resourceVersion": resource_version} if resource_version else {}
        params |= {"labelSelector": label_selector} if label_selector else {}
        params |= {"fieldSelector": field_selector} if field_selector else {}
        if initial_events:
            params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = resource.path(namespace)
        # Margin for an overdue server.
        timeouts = Timeouts(timeout_seconds + 30, CONNECT_SECONDS, idle_seconds, None if idle_seconds is None else ANSWER_SECONDS)
        try:
            with await self.stream("GET", path, params=params, timeouts=timeouts) as response:
                async for line in watching.lines(response):
                    yield watching.parse(line, path)
        except (ExchangeFailed, TimeoutError, OSError) as error:
            raise transport_error("watch", path, error) from error

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send a request and return the answer's JSON (None if empty). ``path`` starts with a slash. Raises StatusError, TransportError."""
        data = None if body is None else _encode(body).encode()
        try:
            with await self.stream(method, path, params=params, data=data, headers=headers) as response:
                return _parsed(await response.read(MAX_BODY_BYTES), method, path)
        except (ExchangeFailed, TimeoutError, OSError) as error:
            raise transport_error(method, path, error) from error

    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
    ) -> Response:
        """Send a request; return a successful response, a context manager with unread body. Retries after ``Retry-After``.

        Raises StatusError, and errors of ``Connections.send``.
        """
        sent = {**self._headers, **(headers or {})}
        if data is not None:
            sent.setdefault("Content-Type", "application/json")
        target = self._target(path, params)
        retries, fresh_token = 0, False
        while True:
            if token := self._token.value():
                sent["Authorization"] = f"Bearer {token}"
            response = await self._sent(method, target, sent, data, timeouts or self._timeouts)
            if response.status < 300:
                return response
            with response:
                error = await _error(response, method, path)
                pause = _retry_after(response)
            if error.code == 401 and not fresh_token and self._token.refused():
                fresh_token = True
            elif pause is not None and retries < self._max_retries:
                retries += 1
                await asyncio.sleep(pause)
            else:
                raise error

    async def _sent(self, method: str, target: str, headers: Mapping[str, str], data: bytes | None, timeouts: Timeouts) -> Response:
        if self._connections is None:
            raise RuntimeError("use the client as an async context manager")
        began, code = time.monotonic(), 0
        try:
            response = await self._connections.send(self._origin(), method, target, headers=headers, body=data, timeouts=timeouts)
            code = response.status
        finally:
            if self.observe is not None:
                self.observe(method, code, time.monotonic() - began)
        return response

    async def _object(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json = None,
        headers: Mapping[str, str] | None = None,
    ) -> Object:
        answer = await self.request(method, path, params=params, body=body, headers=headers)
        if not isinstance(answer, dict):
            raise TransportError(f"{method} {path}: the server did not return an object")
        return answer

    def _origin(self) -> Origin:
        tls = self._certificates.context() if self._server.scheme == "https" else None
        return Origin(*self._address, tls, self.config.tls_server_name)

    def _target(self, path: str, params: Mapping[str, str] | None) -> str:
        own = f"?{self._server.query}" if self._server.query else ""
        target = (self._server.path + path or "/") + own
        if not params:
            return target
        return f"{target}{'&' if '?' in target else '?'}{urlencode(params)}"


async def _error(response: Response, method: str, path: str) -> errors.StatusError:
    raw = await response.read(MAX_ERROR_BYTES)
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return errors.from_status(body, response.status)
    return errors.from_http(response.status, f"{method} {path}: {raw[:500].decode(errors='replace')}")


def _retry_after(response: Response) -> float | None:
    after = response.headers.get("Retry-After", "")
    if (response.status == 429 or response.status >= 500) and after.isdecimal():
        return min(float(after), MAX_RETRY_SECONDS)
    return None


def _parsed(raw: bytes, method: str, path: str) -> Json:
    if not raw:
        return None
    try:
        return json.loads(raw)
    except ValueError as error:
        raise TransportError(f"{method} {path}: the server did not return JSON") from error


def _query(**given: str) -> dict[str, str]:
    return {key: value for key, value in given.items() if value}


def _kept(page: Object, trim: Callable[[Object], Object] | None) -> list[Object]:
    items: list[Object] = page.pop("items", None) or []
    return items if trim is None else [trim(each) for each in items]


def _namespace(resource: Resource, obj: Object, given: str | None) -> str | None:
    return (given or namespace_of(obj)) if resource.namespaced else None
