"""Models and rules of ``devices.redirectedDevices``."""

from __future__ import annotations

import re
from typing import Final

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, Int32, Model
from apiserver.apis.meta.validation import FieldError, Path, invalid
from apiserver.apis.virt.hardware import redirected_devices as hardware
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.v1alpha1.domain.rules import Object, validate_between, validate_count

_CLASS: Final = re.compile(r"0x[0-9a-fA-F]{2}")
_ID: Final = re.compile(r"0x[0-9a-fA-F]{4}")


class RedirectionRule(Model):
    """A rule that allows or rejects the USB devices that match all given fields; without fields, all."""

    device_class: str | None = Field(
        None,
        alias="class",
        description="The class of the device or of one of its interfaces, such as 0x0b (smart card readers) or 0x08 (storage). Unset: any.",
    )
    vendor: str | None = Field(None, description="The vendor's number, such as 0x1050. Unset: any.")
    product: str | None = Field(None, description="The vendor's number of the product, such as 0x0407. Unset: any.")
    allow: bool | None = Field(None, description="Whether matching devices are allowed. Default true.")


class RedirectedDevices(Model):
    """Slots for clients' USB devices, through the subresource usbredir."""

    slots: Int32 | None = Field(
        None,
        description=f"Maximum number of devices at a time, 1 to {layout.REDIRECTED_DEVICES}. The subresource usbredir takes the first "
        "free slot, and with ?slot=1 the second. Default 1.",
    )
    filter: list[RedirectionRule] | None = Field(
        None,
        description="Rules for allowed devices. The first matching rule applies, to the device's own class and to the class of each of "
        "its interfaces. Devices without a matching rule are rejected. Unset: all devices.",
        json_schema_extra=ATOMIC,
    )


def validate(domain: Object, path: Path) -> list[FieldError]:
    """Return errors in ``devices.redirectedDevices``, below ``path``."""
    devices, path = hardware.defaulted(domain), path.child("devices", "redirectedDevices")
    if devices is None:
        return []
    found = validate_between(devices["slots"], 1, layout.REDIRECTED_DEVICES, path.child("slots"))
    rules, path = devices.get("filter", []), path.child("filter")
    found += validate_count(rules, hardware.MAX_RULES, path)
    for position, rule in enumerate(rules):
        found += _validate_rule(rule, path.index(position))
    return found


def _validate_rule(rule: Object, path: Path) -> list[FieldError]:
    forms = {"class": (_CLASS, "0x0b"), "vendor": (_ID, "0x1050"), "product": (_ID, "0x0407")}
    return [
        invalid(path.child(field), rule[field], f"must be a hexadecimal number such as {example}")
        for field, (form, example) in forms.items()
        if field in rule and not form.fullmatch(rule[field])
    ]
