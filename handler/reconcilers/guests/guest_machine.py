"""The description of a machine for its launcher. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_args

from apiserver.apis.meta import objects
from apiserver.apis.virt.hardware import plugin_disks
from apiserver.apis.virt.hardware.plugin_disks import Served
from apiserver.apis.virt.lifecycle import power
from apiserver.apis.virt.spec import access_credentials, chosen_cpu, running
from apiserver.apis.virt.spec.chosen_cpu import Chosen
from apiserver.apis.virt.spec.described import domain_of
from handler.network.binding import Interface
from handler.reconcilers.guests import guest_devices
from launcher.protocol import messages


def machine_of(
    vm: Mapping[str, Any],
    accelerator: messages.Accelerator,
    interfaces: Sequence[Interface],
    chosen: Chosen | None,
    served: Mapping[str, Served] = MappingProxyType({}),
) -> messages.Machine:
    """Return the Machine that describes ``vm`` for its launcher.

    ``chosen`` is the CPU, with KVM, of a machine that names none; ``served`` has the plugins' answers by disk.
    """
    spec = running.spec_of(vm)
    return messages.Machine(
        namespace=objects.namespace_of(vm),
        name=objects.name_of(vm),
        uid=objects.uid_of(vm),
        domain=plugin_disks.with_served(chosen_cpu.given(domain_of(vm), chosen if accelerator == "kvm" else None), served),
        accelerator=accelerator,
        interfaces=tuple(interface_of(each) for each in interfaces if each.tap or each.model),
        grace_seconds=float(power.grace_seconds(vm)),
        access_credentials=tuple(_credential(each) for each in access_credentials.of(spec)),
        pre_stop=tuple((((spec.get("lifecycle") or {}).get("preStop") or {}).get("exec") or {}).get("command") or ()),
        domain_xml=spec.get("domainXML") or "",
        targets=guest_devices.targets(vm),
    )


def interface_of(made: Interface) -> messages.Interface:
    """Return a set-up interface for the launcher's description of the machine."""
    return messages.Interface(made.name, made.mac, made.tap, made.model, made.lease, made.lease6, made.ipv4)


def _credential(given: access_credentials.Credential) -> messages.AccessCredential:
    methods: dict[str, messages.PropagationMethod] = {each: each for each in get_args(messages.PropagationMethod)}
    return messages.AccessCredential(methods[given.method], given.users)
