from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import launcher

pytestmark = pytest.mark.host

IMAGE = Path(launcher.__file__).parents[1] / "images/virt-launcher"
BROUGHT = ("libldap", "libkrb5", "librtmp", "libnghttp2")
"""Only the empty ones would need these."""
PROGRAM = """
import libvirt
libvirt.registerErrorHandler(lambda *_: None, None)
print(libvirt.open("test:///default").lookupByName("test").name())
for uri in ("esx://nowhere.invalid/", "qemu+libssh://nowhere.invalid/session"):
    try:
        libvirt.open(uri)
    except libvirt.libvirtError:
        print("refused")
print(open("/proc/self/maps").read())
"""


def libraries() -> dict[str, str]:
    spec = find_spec("libvirtmod")
    assert spec is not None
    assert spec.origin is not None
    lines = subprocess.run(["ldd", spec.origin], check=True, capture_output=True, text=True).stdout.splitlines()
    return {words[0]: words[2] for line in lines if (words := line.split())[1:2] == ["=>"]}


def test_libvirt_works_with_empty_libraries_in_their_place(tmp_path: Path) -> None:
    found, pairs = libraries(), re.findall(r"\b(lib[^ :]+):(lib[^ ;]+)", (IMAGE / "Containerfile").read_text())
    assert len(pairs) == 3
    for user, name in pairs:
        subprocess.run(["sh", IMAGE / "empty-library.sh", found[user], found[name], tmp_path / name], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""  # the dynamic linker prints a missing version
    assert done.stdout.split()[:3] == ["test", "refused", "refused"]
    assert all(str(tmp_path / name) in done.stdout for _, name in pairs)
    assert [name for name in BROUGHT if name in done.stdout] == []
