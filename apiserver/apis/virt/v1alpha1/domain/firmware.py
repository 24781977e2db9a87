"""Models and rules of ``firmware``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta import names, quantity
from apiserver.apis.meta.objects import dig
from apiserver.apis.meta.schema import Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid, required, too_long
from apiserver.apis.virt.hardware import consoles, machine, memory, tpm
from apiserver.apis.virt.hardware import firmware as hardware
from apiserver.apis.virt.places import forms
from apiserver.apis.virt.v1alpha1.domain.images import PullPolicy
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_bytes, validate_image, validate_path, validate_smbios

MAX_KERNEL_ARGS: Final = 2048
MIN_MEMORY: Final = quantity.parse("128Mi")
"""Minimum for UEFI: with Secure Boot it hangs with 48Mi, without it faults with 32Mi."""


class KernelBootContainer(Model):
    """A container image with a kernel."""

    image: str = Field(description="The image's reference.")
    image_pull_policy: PullPolicy | None = Field(None, description="When the image is pulled, as for a container.")
    kernel_path: str = Field(description="Absolute path of the kernel within the image.")
    initrd_path: str | None = Field(None, description="Absolute path of the initial RAM disk within the image.")


class KernelBoot(Model):
    """Starts a kernel directly, without a boot loader."""

    container: KernelBootContainer = Field(description="Container image with the kernel.")
    kernel_args: str | None = Field(None, description="The kernel's command line.")


class BIOS(Model):
    """A BIOS, the default."""

    use_serial: bool | None = Field(None, description="The BIOS also shows its messages on the first serial port. Default false.")


class EFI(Model):
    """UEFI firmware, by default with Secure Boot.

    Needs machine type q35 and 128Mi of memory; starting Linux by kernelBoot needs about 256Mi.
    """

    secure_boot: bool | None = Field(
        None, description="Starts only programs signed with an enrolled key; Microsoft's keys are enrolled. Default true."
    )
    persistent: bool | None = Field(
        None,
        description="Keeps UEFI variables, such as boot entries, in the claim of persistentState; else they are lost when the "
        "machine is off. Default false.",
    )


class Bootloader(Model):
    """The kind of firmware; at most one field is set."""

    bios: BIOS | None = Field(None, description="A BIOS, the default.")
    efi: EFI | None = Field(None, description="UEFI.")


class PersistentState(Model):
    """Storage for the state of UEFI and TPM while the machine is off."""

    claim_name: str = Field(
        description="Name of a PersistentVolumeClaim of volume mode Filesystem in the same namespace. The machine uses a directory named "
        "by firmware.uuid, or by the object's uid if unset, so machines can share a claim. A few MiB are enough. A machine with "
        "persistent state cannot migrate live."
    )


class System(Model):
    """The machine's data in the guest's SMBIOS tables."""

    manufacturer: str | None = Field(None, description="Its maker. Default QEMU.")
    product: str | None = Field(None, description="Its name. Default the chipset's.")
    version: str | None = Field(None, description="Its version. Default the machine type.")
    sku: str | None = Field(None, description="Its stock-keeping unit.")
    family: str | None = Field(None, description="Its family.")


class Firmware(Model):
    """Firmware of the machine, and direct boot of a kernel."""

    uuid: str | None = Field(
        None, description="The machine's UUID as the guest sees it. Default: one computed from the object's uid, the same at every start."
    )
    serial: str | None = Field(None, description="The machine's serial number as the guest reads it in its SMBIOS tables.")
    system: System | None = Field(None, description="Data of the machine in SMBIOS.")
    bootloader: Bootloader | None = Field(None, description="The machine's first program. Default bios.")
    persistent_state: PersistentState | None = Field(None, description="Claim for persistent UEFI variables and TPM state.")
    kernel_boot: KernelBoot | None = Field(None, description="A kernel to start instead of a boot loader from a disk.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``firmware``, below ``path``, of a domain with defaults."""
    firmware, place = domain.get("firmware") or {}, path.child("firmware")
    found = []
    if (uuid := firmware.get("uuid")) is not None and not forms.UUID.fullmatch(uuid):
        found.append(invalid(place.child("uuid"), uuid, "must be a UUID such as 5d307ca9-b3ef-428c-8861-06e72d69f223"))
    found += validate_smbios(firmware, ("serial",), place)
    found += validate_smbios(firmware.get("system") or {}, hardware.SYSTEM_FIELDS, place.child("system"))
    found += _validate_bootloader(domain, path) + _validate_state(domain, place.child("persistentState"))
    boot = firmware.get("kernelBoot")
    return found if boot is None else found + _validate_kernel_boot(boot, place.child("kernelBoot"))


def _validate_bootloader(domain: Object, path: Path) -> list[FieldError]:
    efi, place = hardware.efi(domain), path.child("firmware", "bootloader", "efi")
    if efi is None:
        return _validate_bios(domain, path)
    found = validate_bytes(domain["memory"]["guest"], MIN_MEMORY, memory.MAX, path.child("memory", "guest"))
    if dig(domain, "firmware", "bootloader", "bios") is not None:
        found.append(forbidden(place, "may not be set together with bios"))
    if "q35" not in (kind := machine.type_of(domain)):
        found.append(forbidden(place, f"requires machine.type q35 or one of its versions, but it is {kind}"))
    if efi["secureBoot"] and dig(domain, "firmware", "kernelBoot") is not None:
        found.append(
            invalid(
                place.child("secureBoot"),
                efi["secureBoot"],
                "must be false with kernelBoot, because the kernel's signature is not checked",
            )
        )
    return found


def _validate_bios(domain: Object, path: Path) -> list[FieldError]:
    if dig(domain, "firmware", "bootloader", "bios", "useSerial") and not consoles.defaulted(domain):
        return [forbidden(path.child("firmware", "bootloader", "bios", "useSerial"), "requires a serial port in devices.consoles")]
    return []


def _validate_state(domain: Object, path: Path) -> list[FieldError]:
    persistent = {"firmware.bootloader.efi": hardware.efi(domain), "devices.tpm": tpm.defaulted(domain)}
    wanted = [field for field, part in persistent.items() if part is not None and part["persistent"]]
    said = dig(domain, "firmware", "persistentState")
    if said is None:
        named = " and ".join(f"{field}.persistent" for field in wanted)
        words = "are true: a claim must keep their state" if wanted[1:] else "is true: a claim must keep its state"
        return [required(path, f"{named} {words}")] if wanted else []
    found = [] if wanted else [forbidden(path, f"requires persistent: true in {' or '.join(persistent)}")]
    place, name = path.child("claimName"), said.get("claimName") or ""
    if not name:
        return [*found, required(place, "the name of a PersistentVolumeClaim in the same namespace")]
    return found + [invalid(place, name, each) for each in names.subdomain_errors(name.lower())]


def _validate_kernel_boot(boot: Object, path: Path) -> list[FieldError]:
    container, below = boot.get("container") or {}, path.child("container")
    found = validate_image(container.get("image") or "", below.child("image"))
    found += validate_path(container.get("kernelPath") or "", below.child("kernelPath"), absolute=True)
    if "initrdPath" in container:
        found += validate_path(container["initrdPath"], below.child("initrdPath"), absolute=True)
    arguments, place = boot.get("kernelArgs") or "", path.child("kernelArgs")
    if len(arguments.encode()) > MAX_KERNEL_ARGS:
        found.append(too_long(place, MAX_KERNEL_ARGS))
    elif not arguments.isprintable():
        found.append(invalid(place, arguments, "must consist of printable characters"))
    return found
