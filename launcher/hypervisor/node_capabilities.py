"""Write what libvirt knows of QEMU and of this node's processors: ``python3 -m launcher.hypervisor.node_capabilities DIRECTORY TYPE…``.

It is an init container of virt-handler (docs/decisions/hardware.md), which trusts the files, because no guest ever runs in this pod. Types
of guests are ``qemu`` and ``kvm``:

* ``DIRECTORY/TYPE.xml``: libvirt's cache of QEMU's capabilities (:mod:`launcher.hypervisor.emulator`), for the node's launcher pods
* ``DIRECTORY/kvm.json``: CPU features of guests with KVM

A file is missing if libvirt fails, and those of ``kvm`` without KVM. ``capabilities`` asks libvirt as the user of launcher pods, who cannot
write the results: a guest that escapes as that user cannot change them for other guests.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Final

from apiserver import logs
from apiserver.apis.virt.places import layout

logger = logging.getLogger(__name__)

DEVICE: Final = Path("/dev/kvm")
"""In this container's own /dev, so its mode may change."""
SECONDS: Final = 60.0
"""For each type. QEMU answers in 4 s. After this time, virt-handler starts without the files."""


def write(directory: Path, virt_type: str) -> None:
    """Replace this type's files in ``directory`` by libvirt's texts about such guests; if impossible, remove them and log why."""
    path = directory / f"{virt_type}.xml"
    earlier = path.read_text() if path.exists() else ""
    features = directory / "kvm.json" if virt_type == "kvm" else None
    for each in (path, features):
        if each is not None:
            each.unlink(missing_ok=True)
    if virt_type == "kvm" and not DEVICE.exists():
        logger.info("this node has no %s", DEVICE)
        return
    try:
        found = json.loads(_ask(virt_type, earlier))
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        output = getattr(error, "stderr", None) or ""
        logger.error("cannot read libvirt's capabilities for guests of type %s: %s", virt_type, output or error)  # noqa: TRY400 - enough
        return
    _replace(path, found.pop("cache"))
    if features is not None:
        _replace(features, json.dumps(found))


def _ask(virt_type: str, earlier: str) -> str:
    """Return the output of ``capabilities``, run as a launcher pod's user, who gets access to KVM for ``kvm`` only."""
    if DEVICE.exists():
        DEVICE.chmod(0o666 if virt_type == "kvm" else 0)
    command = [sys.executable, "-m", "launcher.hypervisor.capabilities", virt_type]
    user = layout.USER_ID
    done = subprocess.run(
        command, input=earlier, capture_output=True, text=True, timeout=SECONDS, check=True, user=user, group=user, extra_groups=[]
    )
    return done.stdout


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.replace(path)


def main(arguments: list[str]) -> int:
    """Write the files for each type of guests; return 0. ``arguments``: the directory, and the types."""
    logs.configure("info")
    directory, *types = arguments
    Path(directory).mkdir(mode=0o700, parents=True, exist_ok=True)
    for virt_type in types:
        write(Path(directory), virt_type)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
