"""Configure tracing by Go's flag and file (KEP-647, ``TracingConfiguration`` of ``apiserver.config.k8s.io``)."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from apiserver.server.tracing.spans import Spans

DEFAULT_ENDPOINT: Final = "localhost:4317"
_VERSIONS: Final = tuple(f"apiserver.config.k8s.io/{each}" for each in ("v1", "v1beta1", "v1alpha1"))
_MILLION: Final = 1_000_000
_FIELDS: Final = {"apiVersion", "kind", "endpoint", "samplingRatePerMillion"}


@dataclass(frozen=True, slots=True)
class TracingConfiguration:
    """Collector of spans, and the share of traced requests."""

    endpoint: str = DEFAULT_ENDPOINT
    """``host:port`` of an OTLP collector over gRPC, without TLS."""
    rate: float = 0.0
    """Share of requests, 0 to 1, traced without a privileged caller."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flag, with Go's name."""
    about = "TracingConfiguration (apiserver.config.k8s.io/v1): where spans of requests go, and of how many; without it there are none"
    parser.add_argument("--tracing-config-file", metavar="FILE", type=Path, default=None, help=about)


def read(text: str) -> TracingConfiguration:
    """Parse a configuration file's text strictly.

    Raises:
        ValueError: it is invalid.
    """
    given: Any = yaml.safe_load(text)
    if not isinstance(given, dict) or given.get("apiVersion") not in _VERSIONS or given.get("kind") != "TracingConfiguration":
        raise ValueError(f"a TracingConfiguration of {' or '.join(_VERSIONS)} is wanted")
    if unknown := sorted(str(each) for each in given.keys() - _FIELDS):
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    endpoint, rate = given.get("endpoint") or DEFAULT_ENDPOINT, given.get("samplingRatePerMillion") or 0
    if not isinstance(endpoint, str) or "://" in endpoint or not endpoint.rpartition(":")[2].isdecimal():
        raise ValueError(f"endpoint: {endpoint!r} is no host:port")
    if not isinstance(rate, int) or isinstance(rate, bool) or not 0 <= rate <= _MILLION:
        raise ValueError(f"samplingRatePerMillion: {rate!r} is not between 0 and {_MILLION}")
    return TracingConfiguration(endpoint, rate / _MILLION)


async def build(file: Path | None, stack: AsyncExitStack) -> Spans | None:
    """Return the tracing, or None. Leaving ``stack`` sends the remaining spans.

    Raises:
        OSError, ValueError: the file is unusable.
    """
    if file is None:
        return None
    try:
        configuration = read(await asyncio.to_thread(file.read_text, encoding="utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"--tracing-config-file={file}: {error}") from error
    from apiserver.server.tracing.spans import Spans, provider  # imported late: gRPC and the rest cost 20 MB

    spans = Spans(provider(configuration.endpoint, configuration.rate))
    stack.push_async_callback(asyncio.to_thread, spans.close)
    return spans
