"""Content negotiation: ``Accept`` of requests, and ``Content-Type`` of bodies.

RFC 9110 §12.5.1. Clients that prefer protobuf get JSON, as with custom resources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from apiserver.apis.meta.errors import NotAcceptable, UnsupportedMediaType

JSON: Final = "application/json"
YAML: Final = "application/yaml"
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"
DISCOVERY: Final = "APIGroupDiscoveryList"
_META_VERSIONS: Final = ("v1", "v1beta1")
_REMEMBERED_LENGTH: Final = 512
"""Kubernetes' clients send less than half."""


@dataclass(frozen=True, slots=True)
class MediaType:
    """One alternative of an Accept header."""

    kind: str
    subtype: str
    parameters: dict[str, str] = field(default_factory=dict)
    quality: float = 1.0

    @property
    def name(self) -> str:
        """Type and subtype: ``application/json``."""
        return f"{self.kind}/{self.subtype}"


@dataclass(frozen=True, slots=True)
class Representation:
    """An answer's encoding, and the kind to convert to, if any."""

    media_type: str = JSON
    transform: str = ""
    version: str = "v1"
    """Of ``meta.k8s.io``."""


def accepted(header: str) -> list[MediaType]:
    """Return an Accept header's valid media types of quality above 0, best first: by quality, types before wildcards, position."""
    found = [each for part in header.split(",") if (each := _media_type(part)) and each.quality > 0]
    return sorted(found, key=lambda each: (-each.quality, each.kind == "*", each.subtype == "*"))


def _media_type(part: str) -> MediaType | None:
    name, *parameters = part.split(";")
    kind, slash, subtype = name.strip().lower().partition("/")
    if kind == "*" and not slash:
        subtype = "*"
    if not kind or not subtype:
        return None
    pairs = {key.strip().lower(): value.strip().strip('"') for key, _, value in (each.partition("=") for each in parameters)}
    try:
        quality = float(pairs.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return MediaType(kind, subtype, pairs, quality)


def _encodings(alternative: MediaType) -> Iterator[str]:
    if alternative.kind in {"*", "application"} and alternative.subtype in {"*", "json"}:
        yield JSON
    elif alternative.name in {YAML, "application/x-yaml", "text/yaml"}:
        yield YAML


def negotiate(header: str, transforms: tuple[str, ...] = (), *, stream: bool = False) -> Representation:
    """Return the best Representation for an Accept header: JSON or YAML (not for a ``stream``), perhaps as one of ``transforms``.

    Raises NotAcceptable.
    """
    found = _negotiated if len(header) <= _REMEMBERED_LENGTH else _negotiated.__wrapped__
    return found(header, transforms, stream)


@lru_cache(maxsize=512)
def _negotiated(header: str, transforms: tuple[str, ...], stream: bool) -> Representation:  # noqa: FBT001 - remembered by its place
    if not header.strip():
        return Representation()
    for alternative in accepted(header):
        for encoding in _encodings(alternative):
            parameters = alternative.parameters
            if (stream and encoding == YAML) or parameters.get("stream", "") not in {"", "watch"} or parameters.get("sv"):
                continue
            wanted, version = parameters.get("as", ""), parameters.get("v", "")
            if not wanted and "g" not in parameters and not version:
                return Representation(encoding)
            if wanted in transforms and parameters.get("g") == "meta.k8s.io" and version in _META_VERSIONS:
                return Representation(encoding, wanted, version)
    offered = [JSON] if stream else [JSON, YAML]
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(offered)}")


def accepts_pretty(header: str) -> bool:
    """Return whether the best alternative, JSON or YAML, requests indentation (``;pretty=1``)."""
    return (_accepts_pretty if len(header) <= _REMEMBERED_LENGTH else _accepts_pretty.__wrapped__)(header)


@lru_cache(maxsize=512)
def _accepts_pretty(header: str) -> bool:
    for alternative in accepted(header):
        if any(True for _ in _encodings(alternative)):
            return alternative.parameters.get("pretty") == "1"
    return False


def wants_aggregated_discovery(header: str) -> bool:
    """Return whether the best supported alternative is aggregated discovery v2."""
    for alternative in accepted(header):
        for encoding in _encodings(alternative):
            wanted = alternative.parameters.get("as", "")
            if encoding == JSON and wanted == DISCOVERY and alternative.parameters.get("g") == "apidiscovery.k8s.io":
                if alternative.parameters.get("v") == "v2":
                    return True
            elif not wanted:
                return False
    return False


def body_type(header: str | None) -> str:
    """Return a body's type, JSON or YAML; missing means JSON (``kubectl scale --current-replicas``). Raises UnsupportedMediaType."""
    name = media_name(header)
    if name in {"", JSON}:
        return JSON
    if name in {YAML, "application/x-yaml", "text/yaml"}:
        return YAML
    raise unsupported((JSON, YAML))


def media_name(header: str | None) -> str:
    """Return a Content-Type in lower case without parameters; empty if missing."""
    return (header or "").partition(";")[0].strip().lower()


def unsupported(types: tuple[str, ...]) -> UnsupportedMediaType:
    """Return the error that lists the supported types."""
    listed = ", ".join(types)
    return UnsupportedMediaType(f"the body of the request was in an unknown format - accepted media types include: {listed}")
