"""The maximum size of an object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from apiserver.apis.meta.validation import FieldError, Path, Reason
from apiserver.apis.virt.hardware import cloud_init
from apiserver.apis.virt.spec.downward_api import MANIFEST

Object = Mapping[str, Any]

MAX_BYTES: Final = 128 << 10
"""JSON without status: virt-controller keeps objects decoded, with up to ten times as much memory."""
_LARGE: Final = MAX_BYTES // 4
"""An error names the longest text itself if it has so many bytes."""
_NOT_KEPT: Final = "managedFields"


def validate(obj: Object, old: Object | None = None) -> list[FieldError]:
    """Return an error, at the largest field, for an object that is too large. An existing object may stay, and shrink.

    Counts JSON without what our processes drop: ``managedFields``, and kubectl's last-applied annotation.
    """
    size = _bytes(obj)
    if size <= MAX_BYTES or (old is not None and size <= _bytes(old)):
        return []
    longest, path = max(_texts(_counted(obj), Path()), default=(0, ""))
    if longest < _LARGE:
        text = f"may have, together with the spec, at most {MAX_BYTES} bytes as JSON, but has {size}"
        return [FieldError("metadata", Reason.TOO_LONG, "", text)]
    text = f"metadata and spec may have at most {MAX_BYTES} bytes as JSON, but have {size}, {longest} of them here{_way_out(path)}"
    return [FieldError(path, Reason.TOO_LONG, "", text)]


def _way_out(path: str) -> str:
    field = path.rpartition(".")[2].removesuffix("Base64")
    return f": put it into a Secret and set {field}SecretRef" if field in cloud_init.DATA else ""


def _counted(obj: Object) -> Object:
    metadata = {key: value for key, value in (obj.get("metadata") or {}).items() if key != _NOT_KEPT}
    if isinstance(annotations := metadata.get("annotations"), dict) and MANIFEST in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != MANIFEST}
    return {"metadata": metadata, "spec": obj["spec"]}


def _bytes(obj: Object) -> int:
    return _length(_counted(obj))


def _length(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass"))


def _texts(value: object, path: Path) -> Iterator[tuple[int, str]]:
    if isinstance(value, str):
        yield _length(value), str(path)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, path.key(key) if path.text == "metadata.annotations" else path.child(key))
    elif isinstance(value, list):
        for position, each in enumerate(value):
            yield from _texts(each, path.index(position))
