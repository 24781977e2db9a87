"""Models and rules of ``features``."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, forbidden, invalid
from apiserver.apis.virt.hardware import clock, firmware
from apiserver.apis.virt.hardware import features as hardware
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between

MIN_SPINLOCK_RETRIES: Final = 4095
MAX_SPINLOCK_RETRIES: Final = 2**31 - 1

_NEEDED: Final = {
    "synic": ("vpindex",),
    "synictimer": ("synic",),
    "tlbflush": ("vpindex",),
    "ipi": ("vpindex",),
    "evmcs": ("vapic",),
}
"""QEMU's requirements of an enlightenment (docs/system/i386/hyperv.rst)."""


class FeatureState(Model):
    """A feature that is on, unless ``enabled`` is false."""

    enabled: bool | None = Field(None, description="Whether it is enabled. Default true.")


class FeatureAPIC(Model):
    """The interrupt controllers of the processors."""

    end_of_interrupt: bool | None = Field(
        None, description="The guest may end an interrupt without an exit to the hypervisor. With KVM only. Default: QEMU's choice."
    )


class FeatureKVM(Model):
    """KVM, as the guest sees it."""

    hidden: bool | None = Field(None, description="Hides KVM from the guest. With KVM only. Default false.")


class FeatureSpinlocks(Model):
    """The guest reports spin locks to the hypervisor, after ``spinlocks`` attempts."""

    enabled: bool | None = Field(None, description="Whether it is enabled. Default true.")
    spinlocks: Int32 | None = Field(None, description="Attempts before the report, at least 4095. Default 4096.")


class FeatureVendorID(Model):
    """The name of the hypervisor that the guest sees."""

    enabled: bool | None = Field(None, description="Whether it is enabled. Default true.")
    vendorid: str | None = Field(None, description="The name, of at most 12 letters, digits, blanks, dots, dashes and underscores.")


class FeatureHyperv(Model):
    """Enlightenments make a Windows guest faster on KVM, as on Hyper-V. Emulated machines have none."""

    relaxed: FeatureState | None = Field(None, description="The guest's watchdogs tolerate processors that pause for a while.")
    vapic: FeatureState | None = Field(None, description="A paravirtual interrupt controller.")
    spinlocks: FeatureSpinlocks | None = Field(None, description="Spin locks that the guest reports to the hypervisor.")
    vpindex: FeatureState | None = Field(None, description="The number of the processor in a register.")
    runtime: FeatureState | None = Field(None, description="The time that the processor ran in a register.")
    synic: FeatureState | None = Field(None, description="The synthetic interrupt controller. Needs vpindex.")
    synictimer: FeatureState | None = Field(None, description="Synthetic timers. Needs synic and clock.timer.hyperv.")
    reset: FeatureState | None = Field(None, description="A register for resetting the machine.")
    vendorid: FeatureVendorID | None = Field(None, description="The hypervisor's name, as the guest sees it.")
    frequencies: FeatureState | None = Field(None, description="The frequencies of the processors' clocks in registers.")
    reenlightenment: FeatureState | None = Field(None, description="The guest gets a notification when the frequency of its clock changes.")
    tlbflush: FeatureState | None = Field(None, description="A paravirtual flush of address translations. Needs vpindex.")
    ipi: FeatureState | None = Field(None, description="Paravirtual interrupts between processors. Needs vpindex.")
    evmcs: FeatureState | None = Field(None, description="Faster nested guests on Intel processors. Needs vapic.")


class Features(Model):
    """Features of the hypervisor and the machine."""

    acpi: FeatureState | None = Field(
        None,
        description="QEMU's ACPI, for the guest's list of devices and the power button. Without it, a BIOS shows its own tables. Default: "
        "enabled.",
    )
    apic: FeatureAPIC | None = Field(None, description="The interrupt controllers of the processors.")
    hyperv: FeatureHyperv | None = Field(None, description="Enlightenments for Windows. Default: none.")
    kvm: FeatureKVM | None = Field(None, description="KVM, as the guest sees it.")
    pvspinlock: FeatureState | None = Field(None, description="Spin locks that yield the processor. With KVM only. Default: QEMU's choice.")
    smm: FeatureState | None = Field(None, description="System Management Mode. Default: where the firmware needs it, for Secure Boot.")


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``features``, below ``path``."""
    path = path.child("features")
    return _validate_firmware(domain, path) + _validate_hyperv(domain, path.child("hyperv"))


def _validate_firmware(domain: Object, path: Path) -> list[FieldError]:
    efi, found = firmware.efi(domain), []
    if efi is not None and not hardware.has_acpi(domain):
        found.append(forbidden(path.child("acpi"), "UEFI needs ACPI"))
    if efi is not None and efi["secureBoot"] and hardware.smm(domain) is False:
        found.append(forbidden(path.child("smm"), "Secure Boot needs System Management Mode"))
    return found


def _validate_hyperv(domain: Object, path: Path) -> list[FieldError]:
    wanted = hardware.hyperv(domain)
    found = [
        forbidden(path.child(name), f"needs features.hyperv.{other}")
        for name, others in _NEEDED.items()
        for other in others
        if name in wanted and other not in wanted
    ]
    if "synictimer" in wanted and not clock.is_present(domain, "hyperv"):
        found.append(forbidden(path.child("synictimer"), "needs clock.timer.hyperv"))
    if (retries := wanted.get("spinlocks", {}).get("spinlocks")) is not None:
        found += validate_between(retries, MIN_SPINLOCK_RETRIES, MAX_SPINLOCK_RETRIES, path.child("spinlocks", "spinlocks"))
    if "vendorid" in wanted and not hardware.VENDOR_ID.fullmatch(vendor := wanted["vendorid"].get("vendorid") or ""):
        text = f"must be of 1 to {hardware.MAX_VENDOR_ID} letters, digits, blanks, dots, dashes and underscores"
        found.append(invalid(path.child("vendorid", "vendorid"), vendor, text))
    return found
