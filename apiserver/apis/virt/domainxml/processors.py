"""``<cpu>``, ``<features>`` and ``<clock>``."""

from __future__ import annotations

from typing import Final

from apiserver.apis.virt.domainxml.grammar import Element
from apiserver.apis.virt.domainxml.values import ON_OFF, YES_NO, matching, number, unit, word, words

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
            required=frozenset({"name"}),
            most=256,
        ),
        "numa": Element(children={"cell": _CELL}, required=frozenset({"cell"})),
    },
)

_SWITCH: Final = Element({"state": ON_OFF})
_HYPERV: Final = Element(
    {"mode": words("custom", "passthrough")},
    {
        **dict.fromkeys(
            ("relaxed", "vapic", "vpindex", "runtime", "synic", "reset", "frequencies", "reenlightenment", "tlbflush", "ipi", "evmcs"),
            _SWITCH,
        ),
        "spinlocks": Element({"state": ON_OFF, "retries": number(4095, 1 << 31)}),
        "stimer": Element({"state": ON_OFF}, {"direct": _SWITCH}),
        "vendor_id": Element({"state": ON_OFF, "value": matching(r"[A-Za-z0-9 _.-]{1,12}", "must be at most 12 characters")}),
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
            children={"tb-cache": Element({"unit": words("MiB")}, text=number(1, MOST_CACHE_MIB), required=frozenset({"unit"}))},
            required=frozenset({"tb-cache"}),
        ),
    }
)
_TIMER: Final = Element(
    {
        "name": words("rtc", "pit", "hpet", "tsc", "kvmclock", "hypervclock"),
        "present": YES_NO,
        "tickpolicy": words("delay", "catchup", "merge", "discard"),
        "track": words("boot", "guest", "wall"),
        "frequency": number(1, 10**11),
    },
    {"catchup": Element(dict.fromkeys(("threshold", "slew", "limit"), number(0, 10**9)))},
    required=frozenset({"name"}),
    most=6,
)
CLOCK: Final = Element(
    {
        "offset": words("utc", "localtime", "variable", "timezone"),
        "timezone": matching(r"[A-Za-z0-9_+/-]{1,64}", "must be the name of a time zone such as Europe/Berlin"),
        "adjustment": number(-(1 << 40), 1 << 40),
        "basis": words("utc", "localtime"),
    },
    {"timer": _TIMER},
    required=frozenset({"offset"}),
)
