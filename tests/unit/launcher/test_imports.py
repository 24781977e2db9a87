from __future__ import annotations

import subprocess
import sys

UNWANTED = {"ssl", "aiohttp", "httptools", "pydantic", "http", "email", "ctypes", "multiprocessing", "orjson", "grpc", "yaml"}
SMALL = {"bz2", "decimal", "fractions", "lzma", "random", "secrets"}  # Python 3.11 itself loads urllib.parse
"""Modules that must not be loaded: together 0.8 MiB of each pod."""
PROGRAM = """
import sys
from launcher.__main__ import ABSENT
sys.modules.update(dict.fromkeys(ABSENT))
import launcher.main.process
print("\\n".join(name for name, module in sys.modules.items() if module is not None))
"""


def test_the_launcher_loads_nothing_heavy() -> None:
    loaded = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    assert "libvirt" in loaded
    assert (UNWANTED | SMALL) & set(loaded) == set()
    assert "apiserver.apis.virt.domainxml.grammar" not in loaded
    assert not [name for name in loaded if name.startswith(("apiserver.client", "apiserver.apis.virt.v1alpha1", "storage", "certs"))]
