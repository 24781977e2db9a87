"""libvirt's statistics of a guest, as the text that a launcher answers to ``messages.Read``. Pure.

The text is a JSON object of libvirt's names and values (https://libvirt.org/html/libvirt-libvirt-domain.html, virConnectGetAllDomainStats):
``cpu.time``, ``vcpu.0.time``, ``net.0.rx.bytes`` and so on. Only the names in :data:`KEPT` are sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

NAME: Final = "statistics"
"""In ``messages.Read``."""
_INDEX: Final = "(?:0|[1-9][0-9]{0,2})"
"""One spelling for each number, because it becomes a label."""
KEPT: Final = re.compile(
    r"cpu\.(?:time|user|system)"
    r"|balloon\.(?:current|rss|unused|available|usable|disk_caches|major_fault|minor_fault|swap_in|swap_out)"
    rf"|vcpu\.{_INDEX}\.(?:state|time|wait|delay)"
    rf"|net\.{_INDEX}\.(?:name|(?:rx|tx)\.(?:bytes|pkts|errs|drop))"
    rf"|block\.{_INDEX}\.(?:name|(?:rd|wr)\.(?:reqs|bytes|times)|fl\.(?:reqs|times))"
)
MAX_VALUES: Final = 4096
"""As for 512 vCPUs and 128 devices."""
MAX_NAME: Final = 64
"""In characters, of a device."""
LIMIT: Final = 1 << 64

Statistics = Mapping[str, int | str]


def encoded(found: Mapping[str, object]) -> str:
    """Return libvirt's statistics as JSON for virt-handler, only those that :data:`KEPT` allows."""
    return json.dumps(_sound(found), separators=(",", ":"))


def decoded(text: str) -> Statistics:
    """Return the statistics in an untrusted text; invalid names and values are left out.

    Raises:
        ValueError: it is not a JSON object.
    """
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not an object")  # noqa: TRY004  a malformed text, like others
    return _sound(found)


def _sound(found: Mapping[str, object]) -> dict[str, int | str]:
    kept = ((key, value) for key, value in found.items() if KEPT.fullmatch(key) and _is_sound(key, value))
    return dict(islice(kept, MAX_VALUES))  # type: ignore[arg-type]  # checked


def _is_sound(key: str, value: object) -> bool:
    if key.endswith(".name"):
        return isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable()
    return type(value) is int and 0 <= value < LIMIT
