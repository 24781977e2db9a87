"""CPU models and features available to guests on this node, and their labels. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, ParseError, fromstring

from apiserver.apis.virt.places import names

MAX_LABELS: Final = 512
"""libvirt 11 has 250 features and 150 models, and no processor supports all of either."""
TRUE: Final = "true"
_LABEL: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Part of a label after its prefix; other names get no label."""


class UnknownCapabilities(Exception):
    """The data does not come from libvirt; the text says why."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """CPU capabilities of guests on this node."""

    host_model: str = ""
    """libvirt's model for ``host-model``; empty if not available."""
    host_features: tuple[str, ...] = ()
    """Of ``host-model`` beyond that model."""
    models: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    """All of ``host-model``, including its model's."""


def parse(text: str) -> Capabilities:
    """Return the Capabilities in the output of :mod:`launcher.hypervisor.capabilities` for ``kvm``.

    Raises UnknownCapabilities for any other text.
    """
    try:
        found = json.loads(text)
        capabilities, expanded = (str(found[key] or "") for key in ("domainCapabilities", "hostModel"))
        document = fromstring(capabilities)  # noqa: S314 - of our own pod: libvirt wrote it, where no guest is
        host = fromstring(expanded or "<cpu/>")  # noqa: S314 - likewise
    except (ValueError, KeyError, TypeError, ParseError) as error:
        raise UnknownCapabilities(f"{type(error).__name__}: {error}") from error
    mode = document.find("cpu/mode[@name='host-model'][@supported='yes']")
    usable = document.findall("cpu/mode[@name='custom'][@supported='yes']/model[@usable='yes']")
    return Capabilities(
        host_model="" if mode is None else mode.findtext("model") or "",
        host_features=() if mode is None else _required(mode),
        models=tuple(sorted({each.text or "" for each in usable})),
        features=_required(host),
    )


def _required(element: Element) -> tuple[str, ...]:
    return tuple(sorted({each.get("name") or "" for each in element.findall("feature[@policy='require']")}))


def labels(capabilities: Capabilities) -> dict[str, str]:
    """Return the Node's labels, all ``true``, for these capabilities with valid names; at most ``MAX_LABELS``, models before features."""
    wanted: Iterable[tuple[str, tuple[str, ...]]] = (
        (names.HOST_MODEL_LABELS, (capabilities.host_model,)),
        (names.CPU_MODEL_LABELS, capabilities.models),
        (names.HOST_MODEL_FEATURE_LABELS, capabilities.host_features),
        (names.CPU_FEATURE_LABELS, capabilities.features),
    )
    found = [f"{prefix}{name}" for prefix, each in wanted for name in each if _LABEL.fullmatch(name)]
    return dict.fromkeys(found[:MAX_LABELS], TRUE)


def stale(present: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Return the CPU labels in ``present``, a Node's, that are not in ``wanted``."""
    return sorted({each for each in present if each.startswith(names.CPU_LABELS)} - set(wanted))
