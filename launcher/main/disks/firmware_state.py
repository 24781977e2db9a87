"""Creates or checks the state of UEFI and TPM before libvirt starts the domain (docs/decisions/hardware.md).

Other pods of the namespace may write to the claim, so unexpected files are refused. Only this user can write to the machine's directory, so
the check stays valid.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

from apiserver.apis.meta import descriptors
from apiserver.apis.virt.hardware import tpm
from apiserver.apis.virt.places import layout
from launcher.domain import firmware_files
from launcher.main.programs.children import Children

SWTPM_SETUP: Final = "/usr/bin/swtpm_setup"
TPM_2: Final = "tpm2"
MAX_TPM_FILES: Final = 16
MAX_TPM_BYTES: Final = 1 << 20
"""Per file, which swtpm reads as a whole. Its own files have 10 KiB."""


class StateUnusable(Exception):
    """Files of UEFI or TPM cannot be used; the message says why."""


async def prepare(
    children: Children, specification: Mapping[str, Any], uid: str, domain_uuid: str, ovmf: PurePosixPath = firmware_files.OVMF
) -> None:
    """Create the initial files of the machine's UEFI and TPM; existing ones stay.

    Raises:
        StateUnusable: existing files are invalid.
        OSError: a file cannot be written.
        launcher.main.programs.children.CommandFailed: swtpm_setup failed.
    """
    if (efi := firmware_files.efi(specification, uid, ovmf)) is not None:
        await asyncio.to_thread(_prepare_variables, Path(efi.template), Path(efi.variables))
    if tpm.defaulted(specification) is not None:
        kept = firmware_files.tpm_state(specification, uid)
        place = Path(layout.TPM_DIRECTORY) / domain_uuid
        await _prepare_tpm(children, place, None if kept is None else Path(kept))


def _prepare_variables(template: Path, variables: Path) -> None:
    own_directory(variables.parent)
    size = template.stat().st_size
    if (found := _regular_file(variables)) is not None:
        if found.st_size != size:
            raise StateUnusable(f"{variables.name}: has {found.st_size} bytes, but this UEFI firmware requires {size}")
        return
    partial = variables.with_suffix(".new")
    partial.unlink(missing_ok=True)
    with template.open("rb") as source, os.fdopen(_create(partial), "wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    partial.rename(variables)


async def _prepare_tpm(children: Children, place: Path, kept: Path | None) -> None:
    """Make a TPM in the claim's directory ``kept`` (None: in libvirt's ``place``) if there is none. libvirt would need a CA of the node."""
    directory = place if kept is None else kept
    if not await asyncio.to_thread(_is_made, place, kept):
        partial = directory / f"{TPM_2}.new"
        command = [SWTPM_SETUP, "--tpm2", "--tpmstate", str(partial), "--createek", "--lock-nvram", "--pcr-banks", "sha256"]
        await children.run(command, {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        await asyncio.to_thread(partial.rename, directory / TPM_2)


def _is_made(place: Path, kept: Path | None) -> bool:
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = place if kept is None else kept
    if kept is not None:
        own_directory(kept.parent)
        place.unlink(missing_ok=True)
        place.symlink_to(kept)
    own_directory(directory)
    if exists(directory / TPM_2):
        _check_tpm(directory / TPM_2)
        return True
    partial = directory / f"{TPM_2}.new"
    if exists(partial):
        shutil.rmtree(partial)
    partial.mkdir(mode=0o700)
    return False


def _check_tpm(directory: Path) -> None:
    own_directory(directory)
    with os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            found = _regular_file(Path(entry.path))
            if count >= MAX_TPM_FILES or (found is not None and found.st_size > MAX_TPM_BYTES):
                raise StateUnusable(f"{directory.name}: has more or larger files than the state of a TPM")


def own_directory(path: Path) -> None:
    """Create a directory, or restrict an existing one to this user; raise StateUnusable if it belongs to another.

    The kubelet gives the ``fsGroup`` access to existing ones.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise StateUnusable(f"{path.name}: {error.strerror or error}") from error
    with descriptors.closing(directory):
        found = os.fstat(directory)
        if found.st_uid != os.geteuid():
            raise StateUnusable(f"{path.name}: belongs to user {found.st_uid}, must belong to {os.geteuid()}")
        if found.st_mode & 0o777 != 0o700:
            os.fchmod(directory, 0o700)


def _regular_file(path: Path) -> os.stat_result | None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise StateUnusable(f"{path.name}: is not a regular file with a single hard link")
    return found


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def exists(path: Path) -> bool:
    """Return whether a file, or a link, has this path. Raises OSError."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True
