"""Strategy of ``virtualmachines``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from apiserver.apis.meta import objects, quantity
from apiserver.apis.meta.objects import Object
from apiserver.apis.meta.validation import FieldError
from apiserver.apis.virt.hardware import cpu, disks, firmware, host_disks, memory
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.lifecycle import conditions, managed_save, operations, phases, power, summary
from apiserver.apis.virt.places import names
from apiserver.apis.virt.places.resources import VIRTUAL_MACHINES
from apiserver.apis.virt.spec import disk_uses, hot_plug, live_changes, password, reserved_claims, running
from apiserver.apis.virt.spec.described import domain_of, size_of
from apiserver.apis.virt.v1alpha1 import defaults, kubevirt_fields, status_validation, types, validation
from apiserver.apis.virt.v1alpha1.allowed import NOTHING, Allowed
from apiserver.registry.generic.strategy import Column, Connect, Read, Strategy
from apiserver.registry.virt.handlers import Handlers
from apiserver.registry.virt.set_password import SetPassword
from apiserver.registry.virt.verbs import VERBS

OF_ITS_PLACE: Final = (
    "nodeName",
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priorityClassName",
    "schedulerName",
)
"""Spec fields that place the machine's pod; a migration ignores ``nodeName``."""

ATTACHING: Final = frozenset({phases.RUNNING, phases.UNKNOWN})
"""Phases of a guest that may get disks."""


class VirtualMachineStrategy(Strategy):
    """Rules of VirtualMachine: verbs and streams, and a finalizer until its pods are gone."""

    resource = VIRTUAL_MACHINES
    singular = "virtualmachine"
    short_names = ("vm", "vms")
    categories = ("all",)
    model = types.VirtualMachine

    def __init__(
        self,
        connects: Mapping[str, Connect] | None = None,
        reads: Mapping[str, Read] | None = None,
        allowed: Allowed = NOTHING,
        handlers: Handlers | None = None,
    ) -> None:
        """``connects``, ``reads``, ``handlers``: streams, reads and verbs through virt-handler; none in development and tests."""
        self.verbs = {**VERBS, password.NAME: SetPassword(handlers)}
        self.connects = connects or {}
        self.reads = reads or {}
        self._allowed = allowed
        self._looked_at: tuple[Any, frozenset[disk_uses.Lock]] = (None, frozenset())
        """The last determining fields, and their locks."""

    def hint(self, field: str, value: object = None) -> str:
        """Return a hint at our name for KubeVirt's."""
        return kubevirt_fields.hint(field, value)

    def default(self, obj: Object) -> None:
        """Set defaults in the spec."""
        defaults.default_virtual_machine(obj)

    def prepare_for_create(self, obj: Object) -> None:
        """Add the finalizer, kept until the pods are gone, and ``status.observedGeneration`` 0 for Helm 4 and Flux."""
        add_finalizer(obj, names.VM_FINALIZER)
        obj["status"] = {"observedGeneration": 0}

    def prepare_for_update(self, obj: Object, old: Object) -> None:
        """Record an edited run strategy, which supersedes the last verb for good; keep the running hardware; reserve new disks' claims."""
        if power.strategy_of(obj) != power.strategy_of(old) and (obj.get("status") or {}).get("request"):
            obj["status"]["runStrategyGeneration"] = int(old["metadata"].get("generation") or 0) + 1
        running.note_edit(obj, old, has_guest=phases.keeps_guest(old))
        reserved_claims.reserve(obj, old, attaches=phases.phase_of(obj) in ATTACHING)

    def prepare_for_status_update(self, obj: Object, old: Object) -> None:
        """Restore a guest's running hardware, with what it has taken since; reserve claims; end the operations of ended attempts."""
        running.keep(obj, old, has_guest=phases.keeps_guest(obj))
        live_changes.record(obj)
        hot_plug.record(obj)
        reserved_claims.reserve(obj, old, attaches=phases.phase_of(obj) in ATTACHING)
        operations.end_with_attempts(obj.get("status") or {})

    def validate(self, obj: Object) -> list[FieldError]:
        """Return a new machine's errors."""
        return validation.validate_virtual_machine(obj, self._allowed)

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return an update's errors."""
        return validation.validate_virtual_machine_update(obj, old, self._allowed)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return status errors that would break readers."""
        return status_validation.validate_virtual_machine_status(obj, old)

    def warnings_on_update(self, obj: Object, old: Object) -> tuple[str, ...]:
        """Return warnings for changes that a running machine does not take: place, hardware, its pod's labels."""
        if phases.phase_of(old) not in phases.WITH_GUEST:
            return ()
        name, found = obj["metadata"]["name"], []
        if changed := [f"spec.{field}" for field in OF_ITS_PLACE if obj["spec"].get(field) != old["spec"].get(field)]:
            found.append(
                f'{", ".join(changed)}: virtual machine "{name}" stays in its present pod; the change takes effect at its next start or '
                "migration (a waiting migration keeps its target: delete it and migrate again)"
            )
        edited = {each.path for each in running.between(obj["spec"], old["spec"])}
        if differences := [each for each in live_changes.rest(obj) if each.path in edited]:
            if phases.phase_of(old) == phases.SCHEDULED:
                text = f'virtual machine "{name}" is starting with the earlier spec; to use the edit: kubectl virt restart {name}'
            else:
                text = f'the guest of virtual machine "{name}" keeps its hardware until it ends; the change takes effect at its next start'
            found.append("; ".join(filter(None, (f"{running.words(differences)}: {text}", live_changes.limits(obj, differences)))))
        found += _never_shrink(obj, old)
        if objects.labels_of(obj) != objects.labels_of(old):
            found.append(
                f'metadata.labels: the present pod of virtual machine "{name}" keeps its labels, which Services select; the change '
                "takes effect at its next start or migration"
            )
        return tuple(found)

    def warnings_on_delete(self, obj: Object, grace_seconds: int | None) -> tuple[str, ...]:
        """Return a warning if there is a guest and a delete gives less time than the spec: the guest keeps the spec's."""
        own = int(dig_vm(obj, "spec", "terminationGracePeriodSeconds") or 0)
        if grace_seconds is None or grace_seconds >= own or phases.phase_of(obj) not in phases.WITH_GUEST:
            return ()
        name = obj["metadata"]["name"]
        return (
            f'gracePeriodSeconds: the guest of virtual machine "{name}" has {own} s to shut down; to shorten this, also during the '
            "deletion, edit spec.terminationGracePeriodSeconds",
        )

    def selectable_fields(self, obj: Object) -> dict[str, str]:
        """Return further fields for selectors."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "status.nodeName": status.get("nodeName") or "",
            "status.phase": status.get("phase") or "",
        }

    def locks(self, obj: Object) -> frozenset[str]:
        """Return the exclusive locks on disks, from the assignment to a node until the guest is off, and while it is suspended.

        An edit takes those of disks that the guest can get, if they are free; else the record of a disk's attachment pod, or the next
        assignment takes them.
        """
        return frozenset(_key(obj, each) for each in self._locks(obj) if each.group == disk_uses.ALONE)

    def shared_locks(self, obj: Object) -> frozenset[tuple[str, str]]:
        """Return the locks on disks that machines of equal use share, as (lock, use)."""
        return frozenset((_key(obj, each), each.group) for each in self._locks(obj) if each.group != disk_uses.ALONE)

    def tentative_locks(self, obj: Object) -> frozenset[str]:
        """Return the locks on claims reserved for disks that the guest lacks. A start that needs such a claim takes its lock."""
        return frozenset(_key(obj, each) for each in _reserved(obj))

    def without_lock(self, obj: Object, lock: str) -> Object:
        """Return the machine without the reservation of a lock's claim."""
        return reserved_claims.without(obj, lock.rpartition("/")[2])

    def lock_taken(self, obj: Object, lock: str, holder: str, held_by: Object | None) -> str:
        """Return a message that names the other machine, unless that is in another namespace."""
        del held_by
        (kind, place, name, *_), (namespace, _, other) = lock.split("/"), holder.partition("/")
        if kind == disk_uses.HOST:
            paths = (host_disks.path_of(each) for each in objects.dig(running.spec_of(obj), "domain", "devices", "disks") or ())
            path = next((each for each in paths if disk_uses.digest(each) == name), "a file")
            who = f'virtual machine "{other}"' if namespace == objects.namespace_of(obj) else "a virtual machine of another namespace"
            return f"{path} of node {place} is in use by {who}; this virtual machine starts when that one is off"
        if kind == disk_uses.SERVER:
            uses = disk_uses.server_uses(running.spec_of(obj).get("domain") or {})
            disk = next((each for each in uses if disk_uses.digest(each) == name), "a disk of a server")
            return f'{disk} is in use by virtual machine "{other}"; this virtual machine starts when that one is off'
        return f'PersistentVolumeClaim "{name}" is in use by virtual machine "{other}"; this virtual machine starts when that one is off'

    def _locks(self, obj: Object) -> frozenset[disk_uses.Lock]:
        """Return the machine's locks; none without a guest. ``domainXML`` has no claims, but may have the UUID of a state's claim."""
        if not phases.keeps_guest(obj):
            return frozenset()
        spec = running.spec_of(obj)
        domain, xml = spec.get("domain") or {}, spec.get("domainXML")
        node = str(dig_vm(obj, "status", "nodeName") or "")
        given = (
            objects.dig(domain, "devices"),
            objects.dig(domain, "firmware"),
            xml,
            objects.uid_of(obj),
            node,
            spec.get(managed_save.FIELD),
        )
        if given != self._looked_at[0]:
            found: frozenset[disk_uses.Lock] = frozenset()
            if _is_sound(domain):
                if xml and firmware.state_claim(domain):
                    domain = {**domain, "firmware": domain_of(obj)["firmware"]}
                found = disk_uses.locks(domain, objects.uid_of(obj), node, managed_save.claim_of(spec))
            self._looked_at = (given, found)
        return self._looked_at[1] | _reserved(obj)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns."""
        return (
            Column("Status", description="The machine's phase, or the reason of its problem."),
            Column("Ready", description="True if the guest runs and can be reached."),
            Column("Node", description="The node that the machine is on."),
            Column("IP", description="The guest's address.", priority=1),
            Column("Pod", description="The pod that the machine is in.", priority=1),
            Column("CPUs", type="integer", description="Virtual processors.", priority=1),
            Column("Memory", description="The guest's memory.", priority=1),
            Column("Run-Strategy", description="Times at which the machine is on.", priority=1),
            Column("Reason", description="Why the machine is not ready, or which edits its guest has not taken.", priority=1),
        )

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """Return one value per column."""
        del now
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        domain = size_of(obj)
        ready = (objects.condition(status.get("conditions"), conditions.READY) or {}).get("status") or "False"
        addresses = (each.get("ipAddress") for each in status.get("interfaces") or [])
        return [
            summary.word(obj),
            ready,
            status.get("nodeName"),
            next((each for each in addresses if each), None),
            status.get("podName") if phases.phase_of(obj) in phases.WITH_POD else None,
            cpu.vcpus(domain),
            str(quantity.parse(str((domain.get("memory") or {}).get("guest", memory.GUEST)))),
            spec.get("runStrategy"),
            summary.reason(obj),
        ]


def _never_shrink(obj: Object, old: Object) -> list[str]:
    before = {(each["name"], disks.claim_of(each)): disks.created_bytes(each) for each in _written_disks(old)}
    return [
        f"{hot_plug.path_of(each['name'])}.source.create.size: an existing disk never shrinks: it keeps {quantity.of_bytes(size)}"
        for each in _written_disks(obj)
        if 0 < disks.created_bytes(each) < (size := before.get((each["name"], disks.claim_of(each)), 0))
    ]


def _written_disks(vm: Object) -> list[Object]:
    return disks.on_written_claims(vm["spec"].get("domain") or {})


def add_finalizer(obj: Object, finalizer: str) -> None:
    """Add ``finalizer`` to a new object, once."""
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _key(obj: Object, lock: disk_uses.Lock) -> str:
    """Return a lock's cluster-wide name: ``kind/namespace/claim`` and so on, ``host/node/digest``."""
    kind, _, rest = lock.what.partition("/")
    if kind == disk_uses.HOST:
        return lock.what
    return f"{kind}/{objects.namespace_of(obj)}/{rest}"


def _reserved(obj: Object) -> frozenset[disk_uses.Lock]:
    if not dig_vm(obj, "status", running.RUNNING, running.RESERVED):
        return frozenset()
    is_sound = all(_is_sound(each.get("domain")) for each in (obj["spec"], obj["status"][running.RUNNING]))
    return reserved_claims.locks(obj) if is_sound else frozenset()


def _is_sound(domain: object) -> bool:
    if not isinstance(domain, dict):
        return False
    devices, state = domain.get("devices") or {}, domain.get("firmware") or {}
    if not isinstance(devices, dict) or not isinstance(state, dict) or not isinstance(state.get("persistentState") or {}, dict):
        return False
    return all(_are_sound(devices.get(each) or []) for each in ("disks", "filesystems"))


def _are_sound(found: object) -> bool:
    return isinstance(found, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(field) or {}, dict) for field in ("source", "target")) for each in found
    )
