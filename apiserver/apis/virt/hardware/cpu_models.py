"""CPU models for machines that specify none, the best first, by vendor (``docs/decisions/hardware.md``).

The order is the reverse of libvirt's ``src/cpu_map/index.xml`` (11.3), from the newest to the oldest. Within a generation, the newest
version comes first (``qemu-system-x86_64 -cpu help`` lists the aliases), models with speculation control (IBRS) before others, and without
TSX before those with it, because processors lose TSX with new microcode.

The last of each vendor is the oldest with all of x86-64-v2.

Each model is only for its vendor's nodes: KVM shows a guest the node's vendor (QEMU's ``host_cpu_instance_init``), and libvirt calls a
model usable if its features exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_BEST_FIRST: Final = {
    "Intel": """
        GraniteRapids-v2 GraniteRapids GraniteRapids-v1
        SierraForest SierraForest-v1
        SapphireRapids-v3 SapphireRapids-v2 SapphireRapids SapphireRapids-v1
        Cooperlake-v2 Cooperlake Cooperlake-v1
        Icelake-Server-v6 Icelake-Server-v5 Icelake-Server-v4 Icelake-Server-v3 Icelake-Server-noTSX Icelake-Server-v2 Icelake-Server-v7
        Icelake-Server Icelake-Server-v1
        Cascadelake-Server-v5 Cascadelake-Server-v4 Cascadelake-Server-noTSX Cascadelake-Server-v3 Cascadelake-Server-v2
        Cascadelake-Server Cascadelake-Server-v1
        Skylake-Server-v5 Skylake-Server-v4 Skylake-Server-noTSX-IBRS Skylake-Server-v3 Skylake-Server-IBRS Skylake-Server-v2
        Skylake-Server Skylake-Server-v1
        Skylake-Client-v4 Skylake-Client-noTSX-IBRS Skylake-Client-v3 Skylake-Client-IBRS Skylake-Client-v2
        Skylake-Client Skylake-Client-v1
        Broadwell-noTSX-IBRS Broadwell-v4 Broadwell-IBRS Broadwell-v3 Broadwell-noTSX Broadwell-v2 Broadwell Broadwell-v1
        Haswell-noTSX-IBRS Haswell-v4 Haswell-IBRS Haswell-v3 Haswell-noTSX Haswell-v2 Haswell Haswell-v1
        IvyBridge-IBRS IvyBridge-v2 IvyBridge IvyBridge-v1
        SandyBridge-IBRS SandyBridge-v2 SandyBridge SandyBridge-v1
        Snowridge-v4 Snowridge-v3 Snowridge-v2 Snowridge Snowridge-v1
        Denverton-v3 Denverton-v2 Denverton Denverton-v1
        Westmere-IBRS Westmere-v2 Westmere Westmere-v1
        Nehalem-IBRS Nehalem-v2 Nehalem Nehalem-v1
    """,
    "AMD": """
        EPYC-Genoa EPYC-Genoa-v1
        EPYC-Milan-v2 EPYC-Milan EPYC-Milan-v1
        EPYC-Rome-v4 EPYC-Rome-v3 EPYC-Rome-v2 EPYC-Rome EPYC-Rome-v1
        EPYC-v4 EPYC-v3 EPYC-IBPB EPYC-v2 EPYC EPYC-v1
        Opteron_G5 Opteron_G5-v1
        Opteron_G4 Opteron_G4-v1
    """,
    "Hygon": "Dhyana-v2 Dhyana Dhyana-v1",
}
MODELS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({vendor: tuple(each.split()) for vendor, each in _BEST_FIRST.items()})
"""The best first, by libvirt's name of the vendor."""
VENDORS: Final[Mapping[str, str]] = MappingProxyType({model: vendor for vendor, models in MODELS.items() for model in models})
PROTECTIONS: Final = ("amd-ssbd", "amd-stibp", "ibpb", "ibrs", "md-clear", "pcid", "spec-ctrl", "ssbd", "stibp", "virt-ssbd")
"""They protect a guest or make protection cheap.

See https://www.qemu.org/docs/master/system/qemu-cpu-models.html ("important CPU features").
"""
