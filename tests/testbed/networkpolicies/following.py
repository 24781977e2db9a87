import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_PAUSE_SECONDS = 0.5
_WATCH_SECONDS = 240


class Follower(Generic[T]):
    """Copies of one collection's objects, by namespace and name, reduced to the used parts."""

    def __init__(self, server: str, context: ssl.SSLContext, path: str, keep: Callable[[Any], T | None], changed: threading.Event) -> None:
        self._server, self._context, self._path, self._keep, self._changed = server, context, path, keep, changed
        self._found: dict[tuple[str, str], T] = {}
        self.known = False

    def found(self) -> list[T]:
        return list(self._found.copy().values())

    def run(self) -> None:
        """Follow the collection forever; list again after any error."""
        while True:
            try:
                version = self._list()
                while version:
                    version = self._watch(version)
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                print(f"{self._path}: {error!r}", flush=True)
            time.sleep(_PAUSE_SECONDS)

    def _list(self) -> str:
        answer = b"".join(self._get(self._path, timeout=30))
        listed = json.loads(answer)
        kept = {_key(each): value for each in listed["items"] if (value := self._keep(each)) is not None}
        if kept != self._found or not self.known:
            self._found, self.known = kept, True
            self._changed.set()
        return str(listed["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        query = f"?watch=true&allowWatchBookmarks=true&timeoutSeconds={_WATCH_SECONDS}&resourceVersion={version}"
        for line in self._get(self._path + query, timeout=_WATCH_SECONDS + 30):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return ""
            version = str(event["object"]["metadata"]["resourceVersion"])
            if event["type"] != "BOOKMARK":
                self._note(event["object"], gone=event["type"] == "DELETED")
        return version

    def _note(self, obj: Any, *, gone: bool) -> None:
        key, value = _key(obj), None if gone else self._keep(obj)
        if self._found.get(key) == value:
            return
        if value is None:
            del self._found[key]
        else:
            self._found[key] = value
        self._changed.set()

    def _get(self, path: str, timeout: float) -> Iterator[bytes]:
        host, _, port = self._server.partition(":")
        connection = http.client.HTTPSConnection(host, int(port), context=self._context, timeout=timeout)
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"{response.status} {response.read(300)!r}")
            yield from response
        finally:
            connection.close()


def _key(obj: Any) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
