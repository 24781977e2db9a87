"""Validation of VirtualMachines and Migrations after defaulting.

It also runs if the schema found errors. Required fields may be missing then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apiserver.apis.meta import names, objects
from apiserver.apis.meta.validation import (
    FieldError,
    Path,
    forbidden,
    invalid,
    required,
    too_long,
)
from apiserver.apis.virt.lifecycle import phases, power
from apiserver.apis.virt.places import names as virt_names
from apiserver.apis.virt.v1alpha1 import access_credentials, domain_xml, guest_commands, managed_save, placement, probes, size
from apiserver.apis.virt.v1alpha1 import allowed as allowing
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.apis.virt.v1alpha1.domain.rules import validate_between

Object = Mapping[str, Any]

SPEC: Final = Path("spec")
METADATA_NAME: Final = Path("metadata").child("name")

MAX_NAME: Final = 63
"""It is a label's value on the machine's pods."""
MAX_GRACE_SECONDS: Final = 7 * 24 * 3600
MAX_START_TIMEOUT_SECONDS: Final = 24 * 3600
MAX_PRIORITY: Final = 100
"""The minimum is its negative."""


def validate_virtual_machine(obj: Object, allowed: Allowed = NOTHING) -> list[FieldError]:
    """Return errors in a new VirtualMachine with defaults; the API machinery checks its metadata except the name."""
    return size.validate(obj) + _validate_outside_domain(obj) + _validate_domain(obj, allowed)


def _validate_domain(obj: Object, allowed: Allowed) -> list[FieldError]:
    return domain_xml.validate(obj["spec"], SPEC) + allowing.validate(obj["spec"], SPEC, allowed, objects.namespace_of(obj))


def _validate_outside_domain(obj: Object) -> list[FieldError]:
    spec = obj["spec"]
    found: list[FieldError] = []
    name = obj.get("metadata", {}).get("name") or ""
    if len(name.encode()) > MAX_NAME:
        found.append(too_long(METADATA_NAME, MAX_NAME))
    found += _validate_running(spec)
    found += access_credentials.validate(spec, SPEC) + placement.validate(spec, SPEC) + probes.validate(spec, SPEC)
    return found + managed_save.validate(spec, SPEC) + guest_commands.validate_lifecycle(spec, SPEC)


def validate_virtual_machine_update(obj: Object, old: Object, allowed: Allowed = NOTHING) -> list[FieldError]:
    """Return errors in an updated VirtualMachine, but not in an unchanged spec or domain.

    Stricter rules must not prevent a finalizer's removal, or a stop.
    """
    found = size.validate(obj, old)
    if obj["spec"] == old["spec"]:
        return found
    found += _validate_outside_domain(obj)
    if _domain(obj) != _domain(old):
        found += _validate_domain(obj, allowed)
    return found


def _domain(obj: Object) -> tuple[object, object]:
    return obj["spec"].get("domain"), obj["spec"].get("domainXML")


def validate_migration(obj: Object) -> list[FieldError]:
    """Return errors in a new Migration."""
    return size.validate(obj) + _validate_migration(obj)


def _validate_migration(obj: Object) -> list[FieldError]:
    spec = obj["spec"]
    path = SPEC.child("selector", "name")
    name = (spec.get("selector") or {}).get("name") or ""
    found = [invalid(path, name, each) for each in names.subdomain_errors(name)] if name else [required(path)]
    if len(name.encode()) > MAX_NAME:
        found.append(too_long(path, MAX_NAME))
    if spec.get("priority") is not None:
        found += validate_between(spec["priority"], -MAX_PRIORITY, MAX_PRIORITY, SPEC.child("priority"))
    return found + placement.validate_selector(spec, SPEC)


def validate_migration_update(obj: Object, old: Object) -> list[FieldError]:
    """Return errors in an updated Migration. Its spec must not change."""
    found = size.validate(obj, old) + _validate_migration(obj)
    text = "a Migration is immutable; delete it, which cancels it if it is unfinished, and create another"
    was, now = old["spec"], obj["spec"]
    found += [forbidden(SPEC.child(each), text) for each in sorted({*was, *now}) if now.get(each) != was.get(each)]
    return found + _validate_held(obj, old)


def _validate_held(obj: Object, old: Object) -> list[FieldError]:
    held, holds = (virt_names.MIGRATION_FINALIZER in objects.finalizers_of(each) for each in (old, obj))
    if not held or holds or not phases.is_unfinished(old):
        return []
    text = (
        f"{virt_names.MIGRATION_FINALIZER} may not be removed before the Migration has ended, because its guest "
        "may be moving; delete the Migration to cancel it"
    )
    return [forbidden(Path("metadata").child("finalizers"), text)]


def _validate_running(spec: Object) -> list[FieldError]:
    rerun = spec["rerun"]
    path = SPEC.child("rerun")
    return [
        *validate_between(rerun["limit"], 0, power.MAX_RERUN_LIMIT, path.child("limit")),
        *validate_between(rerun["startTimeoutSeconds"], 1, MAX_START_TIMEOUT_SECONDS, path.child("startTimeoutSeconds")),
        *validate_between(spec["terminationGracePeriodSeconds"], 0, MAX_GRACE_SECONDS, SPEC.child("terminationGracePeriodSeconds")),
    ]
