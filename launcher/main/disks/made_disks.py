"""ISO 9660 images made in the pod: data for cloud-init, or the keys of a Secret or ConfigMap as files.

A migration's target makes them too, and replaces them by the source's (``received_disks``), because the guest has cached their bytes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from apiserver.apis.virt.hardware import cloud_init, disks
from apiserver.apis.virt.places import layout
from launcher.domain import cloud_init as content
from launcher.domain.values import InvalidSpecification, segment
from launcher.main.disks import mounted
from launcher.main.programs.children import Children
from launcher.protocol import messages

logger = logging.getLogger(__name__)

XORRISO: Final = "/usr/bin/xorriso"
_EPOCH: Final = 315532800
"""1980-01-01, because every file system can represent it."""
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(_EPOCH)}
_METHODS: Final = {cloud_init.NO_CLOUD: "noCloud", cloud_init.CONFIG_DRIVE: "configDrive"}


class SourceUnusable(Exception):
    """The mounted data is unusable; the message names the disk or field, without secret content."""


@dataclass(frozen=True, slots=True)
class _Image:
    name: str
    label: str
    files: Mapping[str, bytes]

    @property
    def path(self) -> Path:
        return _path(self.name)

    @property
    def partial(self) -> Path:
        return _partial(self.name)

    @property
    def tree(self) -> Path:
        return Path(layout.MADE_DIRECTORY, f"{self.name}.files")


def names(specification: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the disks in ``spec.domain`` that are made in the pod."""
    return tuple(str(each["name"]) for each in disks.defaulted(specification) if each.get("type") in cloud_init.MADE)


def read(name: str) -> bytes:
    """Return the image of a disk that was made in this pod. Raises OSError."""
    return _path(name).read_bytes()


def replace(name: str, content: bytes) -> None:
    """Replace the image of a made disk before QEMU opens it. Raises OSError."""
    _partial(name).unlink(missing_ok=True)  # of an interrupted transfer
    _write(_partial(name), content)
    _partial(name).rename(_path(name))


def _path(name: str) -> Path:
    return Path(layout.MADE_DIRECTORY, f"{name}.iso")


def _partial(name: str) -> Path:
    return Path(layout.MADE_DIRECTORY, f"{name}.new")


async def make(children: Children, machine: messages.Machine, *, may_come: bool = False) -> None:
    """Make the images of the made disks. ``may_come``: skip invalid ones, because a migration's source may send them.

    Raises:
        SourceUnusable: a Secret or ConfigMap is invalid.
        InvalidSpecification: the specification or a Secret's content is invalid.
        launcher.main.programs.children.CommandFailed: xorriso failed.
        OSError: a file cannot be written.
    """
    for position, disk in enumerate(disks.defaulted(machine.domain)):
        if disk.get("type") not in cloud_init.MADE:
            continue
        try:
            image = await asyncio.to_thread(_image, disk, position, machine)
        except (SourceUnusable, InvalidSpecification) as error:
            if not may_come:
                raise
            logger.warning("cannot make a disk from its present source; the migrating guest brings it", extra={"error": str(error)})
            continue
        try:
            await asyncio.to_thread(_lay_out, image)
            await children.run(_command(image), _ENVIRONMENT)
            os.rename(image.partial, image.path)  # noqa: PTH104  # pathlib in asynchronous code is what another rule forbids
        finally:
            await asyncio.to_thread(shutil.rmtree, image.tree, ignore_errors=True)


def _command(image: _Image) -> list[str]:
    # Rock Ridge with root as the owner, and Joliet for Windows. The command line contains only our paths.
    options = ["-quiet", "-r", "-J", "-joliet-long", "-no-pad", "-V", image.label, "-o", str(image.partial)]
    return [XORRISO, "-no_rc", "-as", "mkisofs", *options, str(image.tree)]


def _image(disk: Mapping[str, Any], position: int, machine: messages.Machine) -> _Image:
    kind, source = str(disk["type"]), disk.get("source") or {}
    path = f"devices.disks[{position}]"
    name = segment(disk["name"], f"{path}.name")
    try:
        if kind in cloud_init.TYPES:
            return _Image(name, cloud_init.LABELS[kind], _for_cloud_init(kind, source, name, machine))
        label = source.get("volumeLabel") or cloud_init.DEFAULT_LABEL
        return _Image(name, str(label), _named(mounted.read(Path(layout.SOURCES_DIRECTORY, name))))
    except InvalidSpecification as error:
        raise InvalidSpecification(f"{path}.source.{error}") from None
    except mounted.Unreadable as error:
        raise SourceUnusable(f"disk {name!r}: {kind}: {error}") from None


def _named(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    if too_long := [each for each in files if len(each) > cloud_init.MAX_FILE_NAME]:
        raise mounted.Unreadable(f"the key {too_long[0][:32]}… has more than {cloud_init.MAX_FILE_NAME} characters")
    return files


def _for_cloud_init(kind: str, source: Mapping[str, Any], name: str, machine: messages.Machine) -> dict[str, bytes]:
    referred = [datum for datum in cloud_init.DATA if cloud_init.reference(source, datum)]
    given: dict[str, bytes] = {}
    if referred:
        limit = cloud_init.MAX_VALUES * len(referred)
        given = mounted.read(Path(layout.SOURCES_DIRECTORY, name), limit=limit, count=len(referred))
    facts = {"uid": machine.uid, "hostname": machine.name, "keys": _keys(kind, machine)}
    return content.files(kind, source, given, facts)


def _keys(kind: str, machine: messages.Machine) -> list[str]:
    found: list[str] = []
    for position, credential in enumerate(machine.access_credentials):
        if credential.method == _METHODS[kind]:
            found += public_keys(position)
    try:
        return list(content.counted(found, "spec.accessCredentials"))
    except InvalidSpecification as error:
        raise SourceUnusable(str(error)) from None


def public_keys(position: int) -> tuple[str, ...]:
    """Return the public keys of an element of ``spec.accessCredentials``, or raise SourceUnusable, which names the field."""
    path = f"spec.accessCredentials[{position}]"
    try:
        return content.public_keys(mounted.read(Path(layout.ACCESS_CREDENTIALS_DIRECTORY, str(position))), path)
    except mounted.Unreadable as error:
        raise SourceUnusable(f"{path}: its Secret: {error}") from None
    except InvalidSpecification as error:
        raise SourceUnusable(str(error)) from None


def _lay_out(image: _Image) -> None:
    shutil.rmtree(image.tree, ignore_errors=True)  # of an interrupted start
    image.partial.unlink(missing_ok=True)
    image.tree.mkdir(mode=0o700)
    for name, data in image.files.items():
        path = image.tree / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, data)
    for path in (image.tree, *image.tree.rglob("*")):
        os.utime(path, (_EPOCH, _EPOCH))
    _write(image.partial, b"")


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
