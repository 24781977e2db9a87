"""libvirt's dictionaries of figures as our dataclasses, and the answers of guest agents that it passes on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from xml.etree.ElementTree import Element, SubElement, tostring

from launcher.hypervisor.port import Progress

MAX_ANSWER: Final = 2 << 20
"""Characters: of ten thousand packages the list takes half. libvirt takes five times as many from an agent; ours have less memory."""


def progress(stats: Mapping[str, Any]) -> Progress | None:
    """Return the figures of virDomainGetJobStats; None when no job is behind them."""
    if "time_elapsed" not in stats and "memory_total" not in stats:
        return None
    return Progress(
        elapsed_milliseconds=int(stats.get("time_elapsed", 0)),
        memory_total_bytes=int(stats.get("memory_total", 0)),
        memory_processed_bytes=int(stats.get("memory_processed", 0)),
        memory_remaining_bytes=int(stats.get("memory_remaining", 0)),
        iteration=int(stats.get("memory_iteration", 0)),
        downtime_milliseconds=int(stats.get("downtime", 0)),
    )


def cid(domain: Element) -> int:
    """Return the address of the guest's sockets to its node (``<cid>``); 0 without any, or while libvirt has not chosen one."""
    found = domain.find("devices/vsock/cid")
    address = found.get("address", "") if found is not None else ""
    return int(address) if address.isdecimal() else 0


def secret_xml(uuid: str) -> str:
    """Return the XML of a secret for a login to an iSCSI target: it is kept in memory, and no client can read its value."""
    root = Element("secret", ephemeral="yes", private="yes")
    SubElement(root, "uuid").text = uuid
    SubElement(SubElement(root, "usage", type="iscsi"), "target").text = uuid
    return tostring(root, encoding="unicode")


def agent_answer(text: str) -> object:
    """Return what a guest agent's answer holds: any JSON value.

    Raises:
        ValueError: it is too long, or no answer.
        RecursionError: it is nested too deeply.
    """
    if len(text) > MAX_ANSWER:
        raise ValueError("too long")
    answer = json.loads(text)
    if not isinstance(answer, dict) or "return" not in answer:
        raise ValueError("no answer")
    return answer["return"]
