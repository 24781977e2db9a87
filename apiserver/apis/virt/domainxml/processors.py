"""``<cpu>``, ``<features>`` and ``<clock>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apiserver.apis.virt.domainxml.grammar import Choice, Element
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, Rule, matching, number, unit, word, words
from apiserver.apis.virt.hardware import clock

MAX_CPUS: Final = 512
MOST_CACHE_MIB: Final = 4096

_COUNT: Final = number(1, MAX_CPUS)
_CELL: Final = Element(
    {
        "id": number(0, 63),
        "cpus": matching(r"[0-9]{1,3}(-[0-9]{1,3})?(,[0-9]{1,3}(-[0-9]{1,3})?){0,63}", "must be numbers of processors such as 0-3,5"),
        "memory": number(1, 10**18),
        "unit": unit,
        "discard": YES_NO,
    },
    required=frozenset({"memory"}),
    most=64,
)
CPU: Final = Element(
    {
        "mode": words("custom", "host-model", "host-passthrough", "maximum"),
        "match": words("minimum", "exact", "strict"),
        "check": words("none", "partial", "full"),
        "migratable": ON_OFF,
    },
    {
        "model": Element({"fallback": words("allow", "forbid")}, text=word),
        "vendor": Element(text=words("Intel", "AMD", "Hygon")),
        "topology": Element(
            dict.fromkeys(("sockets", "dies", "cores", "threads"), _COUNT), required=frozenset({"sockets", "cores", "threads"})
        ),
        "cache": Element({"level": number(1, 3), "mode": words("emulate", "passthrough", "disable")}, required=frozenset({"mode"})),
        "feature": Element(
            {"policy": words("force", "require", "optional", "disable", "forbid"), "name": word},
            required=frozenset({"policy", "name"}),
            most=256,
        ),
        "numa": Element(children={"cell": _CELL}, required_children=frozenset({"cell"})),
    },
)


def _zone(name: str) -> str:
    return "" if clock.is_zone(name) else "must be the name of a time zone such as Europe/Berlin"


_SWITCH: Final = Element({"state": ON_OFF}, required=frozenset({"state"}))
_HYPERV: Final = Element(
    {"mode": words("custom", "passthrough")},
    {
        **dict.fromkeys(
            ("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies", "reenlightenment", "tlbflush", "ipi", "evmcs"),
            _SWITCH,
        ),
        "spinlocks": Element({"state": ON_OFF, "retries": number(4095, (1 << 31) - 1)}, required=frozenset({"state", "retries"})),
        "stimer": Element({"state": ON_OFF}, {"direct": _SWITCH}, required=frozenset({"state"})),
        "vendor_id": Element(
            {"state": ON_OFF, "value": matching(r"[A-Za-z0-9 _.-]{1,12}", "must be at most 12 characters")},
            required=frozenset({"state", "value"}),
        ),
    },
)
FEATURES: Final = Element(
    children={
        "acpi": Element(),
        "apic": Element({"eoi": ON_OFF}),
        "pae": Element(),
        **dict.fromkeys(("hap", "pvspinlock", "pmu", "vmport", "vmcoreinfo"), _SWITCH),
        "smm": _SWITCH,
        "hyperv": _HYPERV,
        "kvm": Element(children=dict.fromkeys(("hidden", "hint-dedicated", "poll-control", "pv-ipi"), _SWITCH)),
        "tcg": Element(
            children={
                "tb-cache": Choice(
                    "unit",
                    {
                        "MiB": Element({"unit": words("MiB")}, text=number(1, MOST_CACHE_MIB)),
                        "KiB": Element({"unit": words("KiB")}, text=number(1024, MOST_CACHE_MIB << 10)),
                    },
                )
            },
            required_children=frozenset({"tb-cache"}),
        ),
    }
)
_TIMERS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "rtc": {"tickpolicy": words("delay", "catchup"), "track": words("guest", "wall")},
    "pit": {"tickpolicy": words("delay", "discard")},
    "hpet": {},
    "tsc": {"frequency": number(1, 10**11)},
    "kvmclock": {},
    "hypervclock": {},
}
"""Attributes that QEMU supports, by name."""
_TIMER: Final = Choice(
    "name", {name: Element({"name": words(name), "present": YES_NO, **more}) for name, more in _TIMERS.items()}, most=len(_TIMERS)
)
_ADJUSTMENT: Final = {"adjustment": number(-(1 << 31), (1 << 31) - 1)}
_OFFSETS: Final[Mapping[str, Mapping[str, Rule]]] = {
    "utc": _ADJUSTMENT,
    "localtime": _ADJUSTMENT,
    "timezone": {"timezone": _zone},
    "variable": {**_ADJUSTMENT, "basis": words("utc", "localtime")},
}
CLOCK: Final = Choice(
    "offset",
    {
        offset: Element({"offset": words(offset), **more}, {"timer": _TIMER}, required=frozenset({"timezone"} & more.keys()))
        for offset, more in _OFFSETS.items()
    },
)
