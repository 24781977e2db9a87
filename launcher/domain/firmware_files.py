"""Paths in the pod of firmware and TPM files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from apiserver.apis.virt.hardware import firmware, tpm
from apiserver.apis.virt.places import layout
from launcher.domain.values import segment

OVMF: Final = PurePosixPath("/usr/share/OVMF")


@dataclass(frozen=True, slots=True)
class Efi:
    """The files of a UEFI."""

    code: PurePosixPath
    template: PurePosixPath
    variables: PurePosixPath
    """This machine's variables, in a file with the template's name.

    Variables without Secure Boot contain no keys, and Secure Boot would check nothing with them.
    """
    secure: bool


def efi(specification: Mapping[str, Any], uid: str, ovmf: PurePosixPath = OVMF) -> Efi | None:
    """Return the files of the machine's UEFI; None for a BIOS.

    ``uid`` is the object's, ``ovmf`` the directory of the OVMF files.
    """
    efi = firmware.efi(specification)
    if efi is None:
        return None
    secure, persistent = bool(efi["secureBoot"]), bool(efi["persistent"])
    template = ovmf / ("OVMF_VARS_4M.ms.fd" if secure else "OVMF_VARS_4M.fd")
    directory = state(specification, uid) if persistent else PurePosixPath(layout.EFI_VARIABLES_DIRECTORY)
    code = ovmf / ("OVMF_CODE_4M.secboot.fd" if secure else "OVMF_CODE_4M.fd")
    return Efi(code, template, directory / template.name, secure)


def tpm_state(specification: Mapping[str, Any], uid: str) -> PurePosixPath | None:
    """Return the TPM state's path in the pod, below that of :func:`state`; None: it is not persistent."""
    defaulted = tpm.defaulted(specification)
    return state(specification, uid) / "tpm" if defaulted is not None and defaulted["persistent"] else None


def state(specification: Mapping[str, Any], uid: str) -> PurePosixPath:
    """Return the path in the pod of the machine's directory in the claim of ``firmware.persistentState``.

    Its name is the firmware's UUID, else ``uid``.
    """
    return PurePosixPath(layout.STATE_DIRECTORY) / segment(firmware.state_directory(specification, uid), "firmware.uuid")


def not_migratable(specification: Mapping[str, Any]) -> str:
    """Return why firmware or TPM prevents live migration; else empty."""
    parts = {"UEFI": firmware.efi(specification), "TPM": tpm.defaulted(specification)}
    kept = [name for name, part in parts.items() if part is not None and part["persistent"]]
    if kept:
        return f"two pods cannot write the persistent state of its {' and '.join(kept)} at the same time"
    return ""
