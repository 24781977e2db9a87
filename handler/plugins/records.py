"""Records of plugins' additions on the node, so a later process can call ``DEL`` for them.

The files ``<directory>/<uid of the pod>/<kind>-<element>.json`` are in a tmpfs, as additions end with the node's run. Each is written
before a plugin is called, and again with its answer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args
from weakref import WeakValueDictionary

from apiserver.apis.meta import names
from handler.plugins.protocol import Kind
from handler.pods import places

logger = logging.getLogger(__name__)

DIRECTORY: Final = Path("/run/kubevirt-handler/plugins")
_KINDS: Final[Mapping[str, Kind]] = {each: each for each in get_args(Kind)}


class Element(NamedTuple):
    """A disk or an interface of a pod: a record's key."""

    kind: Kind
    pod_uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Record:
    """Something that a plugin was called to add to a pod."""

    kind: Kind
    pod_uid: str
    element: str
    """Name of the disk or interface."""
    plugin: str
    document: Mapping[str, Any]
    """The request."""
    result: Mapping[str, Any] | None = None
    """The answer, if any."""

    @property
    def key(self) -> Element:
        """Kind, pod's uid and name of the disk or interface that this record is about."""
        return Element(self.kind, self.pod_uid, self.element)

    def answered(self, result: Mapping[str, Any]) -> Record:
        """Return the record with the plugin's result of ``ADD``."""
        return replace(self, result=result)

    def request(self) -> dict[str, Any]:
        """Return the request document for ``CHECK`` and ``DEL``: that of ``ADD``, with its result, if any, as ``prevResult``."""
        return {**self.document, **({"prevResult": self.result} if self.result is not None else {})}


class Records:
    """This node's records of what plugins added to pods, as files, with a lock per element."""

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self._directory = directory
        self._locks: WeakValueDictionary[Element, asyncio.Lock] = WeakValueDictionary()

    def lock(self, element: Element) -> asyncio.Lock:
        """Return the lock for a disk or interface, to hold during calls of ADD and DEL.

        Otherwise a ``DEL`` during ``ADD`` would find nothing to undo.
        """
        return self._locks.setdefault(element, asyncio.Lock())

    def write(self, record: Record) -> None:
        """Write a record, replacing an older one of the element.

        Raises OSError if it cannot be written: then the plugin must not be called. Raises ValueError for an invalid uid or name.
        """
        path = self._path(record.key)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {"plugin": record.plugin, "document": record.document, "result": record.result}
        partial = path.with_suffix(".new")
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(content, file)
        partial.rename(path)

    def of(self, element: Element) -> Record | None:
        """Return the stored record of a disk or interface; None if missing or unreadable. Raises ValueError for an invalid uid or name."""
        path = self._path(element)
        try:
            found = json.loads(path.read_text())
            return Record(*element, str(found["plugin"]), dict(found["document"]), found["result"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the record %s cannot be read: %s", path, error)
            return None

    def remove(self, record: Record) -> None:
        """Remove a record's file."""
        path = self._path(record.key)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            path.parent.rmdir()

    def all(self) -> Iterator[Record]:
        """Yield all readable records, ignoring other files."""
        for path in sorted(self._directory.glob("*/*.json")):
            kind, _, element = path.stem.partition("-")
            is_ours = kind in _KINDS and _are_names(path.parent.name, element)
            if is_ours and (found := self.of(Element(_KINDS[kind], path.parent.name, element))) is not None:
                yield found

    def _path(self, element: Element) -> Path:
        if not _are_names(element.pod_uid, element.name):
            raise ValueError(f"{ascii(element.pod_uid)[:80]} and {ascii(element.name)[:80]} are not valid names of a pod and its element")
        return self._directory / element.pod_uid / f"{element.kind}-{element.name}.json"


def _are_names(pod_uid: str, element: str) -> bool:
    return places.is_uid(pod_uid) and not names.label_errors(element)
