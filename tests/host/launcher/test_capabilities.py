"""libvirt's cache of QEMU's capabilities: written once per node, used in each pod, ignored when outdated."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiserver.apis.virt.places import layout
from handler.cpu import capabilities
from handler.pods import qemu_capabilities
from launcher.hypervisor.emulator import Emulator
from tests.contracts.test_hypervisor import connected, private_libvirtd
from tests.host.launcher.sandbox import PYTHON

pytestmark = pytest.mark.host


class Counted:
    def __init__(self, directory: Path) -> None:
        self._runs = directory / "runs"
        self._runs.touch()
        self._runs.chmod(0o666)
        self._program = directory / "qemu"
        self._program.write_text(f'#!/bin/sh\necho run >>{self._runs}\nexec {layout.EMULATOR} "$@"\n')
        self._program.chmod(0o755)

    async def learn(self, given: str) -> tuple[str, int]:
        before = len(self._runs.read_text().splitlines())
        with private_libvirtd() as daemon:
            emulator = Emulator(str(self._program), daemon.capabilities(str(self._program)))
            emulator.cache.parent.mkdir(parents=True)
            emulator.cache.touch()
            for path in (emulator.cache, emulator.cache.parent):
                shutil.chown(path, layout.USER_ID)
            async with connected(daemon.uri, emulator) as hypervisor:
                await hypervisor.learn(given)
            return emulator.cache.read_text(), len(self._runs.read_text().splitlines()) - before


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kv") as directory:  # pytest's directories are closed to uid 107
        path = Path(directory)
        path.chmod(0o755)
        yield path


def outdated(cache: str, name: str) -> str:
    changed, count = re.subn(rf"(<{name}>\d*)\d</{name}>", rf"\g<1>x</{name}>", cache)
    assert count == 1
    digit = "1" if f"2</{name}>" in cache else "2"
    return changed.replace(f"x</{name}>", f"{digit}</{name}>")


async def test_libvirt_starts_qemu_only_without_an_up_to_date_cache(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    qemu = Counted(place)
    cache, runs = await qemu.learn("")
    assert runs > 0
    assert "libvirt has probed QEMU" in caplog.text
    caplog.clear()
    assert await qemu.learn(cache) == (cache, 0)
    assert "probed" not in caplog.text
    for name in ("selfctime", "selfvers", "qemuctime", "qemumoddirmtime"):
        assert await qemu.learn(outdated(cache, name)) == (cache, runs), name
    for broken in ("<qemuCaps/>", cache[: len(cache) // 2], "none of libvirt's"):
        assert await qemu.learn(broken) == (cache, runs)


def test_the_nodes_files_are_those_of_a_pod_with_and_without_kvm(place: Path, program: Path) -> None:
    found = place / "found"
    device, passwd = place / "kvm", place / "passwd"
    passwd.write_text(f"root:x:0:0::/root:/bin/sh\nqemu:x:{layout.USER_ID}:{layout.USER_ID}::/:/bin/sh\n")
    has_kvm = Path("/dev/kvm").exists()
    if has_kvm:
        os.mknod(device, 0o600 | 0o020000, Path("/dev/kvm").stat().st_rdev)
    program_runs = f"env PYTHONPATH={program} {PYTHON} -m launcher.hypervisor.node_capabilities {found} qemu kvm"
    script = [
        "set -e",
        f"mount --bind {passwd} /etc/passwd",
        f"mkdir {place}/program && mount --bind {program} {place}/program",
        *([f"mount --bind {device} /dev/kvm"] if has_kvm else []),
        program_runs.replace(str(program), f"{place}/program"),
    ]
    command = shlex.join(["sh", "-c", "\n".join(script)])
    subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", command], check=True)

    assert (found.stat().st_uid, found.stat().st_mode & 0o777) == (0, 0o700)
    emulated, accelerated = (qemu_capabilities.read(found, each) for each in ("qemu", "kvm"))
    assert "<flag name='kvm'/>" not in emulated
    assert f"<emulator>{layout.EMULATOR}</emulator>" in emulated
    if has_kvm:
        assert "<flag name='kvm'/>" in accelerated
        assert capabilities.parse((found / "kvm.json").read_text()).models
        assert json.loads((found / "kvm.json").read_text()).keys() == {"domainCapabilities", "hostModel"}
    else:
        assert sorted(each.name for each in found.iterdir()) == ["qemu.xml"]
