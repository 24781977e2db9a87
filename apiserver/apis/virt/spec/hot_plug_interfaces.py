"""Network cards that a running guest gets and loses (``docs/decisions/networks.md``).

virt-handler attaches a card that only the desired form has, if the guest's pod has the network. On its report, virt-api copies the card to
the running form, where a removed card stays until the guest gave it back.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any, Final

from apiserver.apis.meta.objects import Object, uid_of
from apiserver.apis.virt.hardware import given, interfaces
from apiserver.apis.virt.hardware.given import Domain
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.spec import attachments, running

INTERFACE: Final = "interface"
"""In ``status.domain.liveChanges`` of a guest that takes network cards."""
MODELS: Final = ("virtio", "e1000e")
"""On PCI Express, so a running guest can get them."""
_CARDS: Final = "spec.domain.devices.interfaces"


def is_pluggable(card: Mapping[str, Any], domain: Domain) -> bool:
    """Return whether a running guest can get and lose this card.

    It must be of type masquerade, macvtap, plugin, or bridge with ``network``, of a model in ``MODELS``, with one queue in the running
    ``domain``.
    """
    is_type = card["type"] in ("masquerade", interfaces.MACVTAP, interfaces.PLUGIN) or (
        card["type"] == "bridge" and bool(card.get("network"))
    )
    return is_type and card["model"] in MODELS and interfaces.queues(domain, card["model"]) < 2


def takes_interfaces(vm: Mapping[str, Any]) -> bool:
    """Return whether the guest's virt-launcher can attach network cards."""
    return INTERFACE in (dig_vm(vm, "status", "domain", "liveChanges") or ())


def path_of(card: str) -> str:
    """Return the path of a card: ``spec.domain.devices.interfaces[NAME]``."""
    return f"{_CARDS}[{card}]"


def limit(found: running.Difference) -> str:
    """Return why this difference, which the caller found to need a restart, does; empty unless it is of a network card."""
    if not found.path.startswith(f"{_CARDS}["):
        return ""
    if found.kind == "changed":
        return "of a card only state changes; a card of another name replaces it"
    return f"cards of type masquerade, macvtap, plugin, and bridge with network come and go, with model {' or '.join(MODELS)} and one queue"


def added(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the pluggable cards that the spec has and the guest lacks."""
    desired, runs = running.domains_of(vm)
    return _only_in(desired, runs, runs)


def removed(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the pluggable cards that the guest has and the spec lacks."""
    desired, runs = running.domains_of(vm)
    return _only_in(runs, desired, runs)


def kept(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the pluggable cards that guest and spec have, as the guest has them."""
    desired, runs = running.domains_of(vm)
    wanted = _by_name(desired)
    return tuple(each for name, each in _by_name(runs).items() if name in wanted and is_pluggable(each, runs))


def coming(vm: Mapping[str, Any]) -> tuple[Object, ...]:
    """Return the :func:`added` cards that fit and conflict with no other card. The pod may lack their networks."""
    there, found = interfaces.defaulted(running.domains_of(vm)[1]), list[Object]()
    for each in added(vm):
        others = [*there, *found]
        if len(others) < interfaces.MAX_INTERFACES and not any(_conflicts(vm, each, other) for other in others):
            found.append(each)
    return tuple(found)


def _conflicts(vm: Mapping[str, Any], card: Object, other: Object) -> bool:
    both_on_pods = interfaces.is_on_pods_network(card) and interfaces.is_on_pods_network(other)
    return both_on_pods or attachments.mac_address(uid_of(vm), card) == attachments.mac_address(uid_of(vm), other)


def live(vm: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all cards to attach or detach; none if virt-launcher cannot."""
    return tuple(str(each["name"]) for each in (*added(vm), *removed(vm))) if takes_interfaces(vm) else ()


def take(vm: Object, changed: Collection[str]) -> None:
    """Add or remove cards of these names in ``status.running`` as in the spec, in place; it goes if it then equals the spec."""
    running.set_domain(vm, _with_presence(vm, changed))


def with_coming(vm: Object, names: Collection[str]) -> Object:
    """Return the machine; its ``status.running``, in a copy, also has those :func:`coming` cards that have these names."""
    found = [str(each["name"]) for each in coming(vm) if each["name"] in names]
    return _with_cards(vm, found) if found else vm


def with_added(vm: Mapping[str, Any]) -> Object:
    """Return a copy of the machine with all :func:`added` cards in ``status.running``, also those that conflict."""
    found = [str(each["name"]) for each in added(vm)]
    return _with_cards(dict(vm), found) if found else dict(vm)


def alone(vm: Object, card: str) -> Object:
    """Return a copy of the machine with only this card (name) in ``status.running``, as the guest or else the spec has it."""
    desired, runs = running.domains_of(vm)
    found = {**_by_name(desired), **_by_name(runs)}[card]
    domain = given.with_devices(runs, "interfaces", [found])
    return {**vm, "status": {**(vm.get("status") or {}), running.RUNNING: {**running.spec_of(vm), "domain": domain}}}


def with_interfaces(runs: Domain, desired: Domain, changed: Collection[str]) -> Object:
    """Return a copy of ``runs`` in which cards of these names come or go as in ``desired``, in its order."""
    there, wanted = _by_name(runs), _by_name(desired)
    found = [there.get(name, card) for name, card in wanted.items() if name in there or name in changed]
    found += [card for name, card in there.items() if name not in wanted and name not in changed]
    return given.with_devices(runs, "interfaces", copy.deepcopy(found))


def _with_cards(vm: Object, changed: Collection[str]) -> Object:
    runs = {**vm["status"][running.RUNNING], "domain": _with_presence(vm, changed)}
    return {**vm, "status": {**vm["status"], running.RUNNING: runs}}


def _with_presence(vm: Object, changed: Collection[str]) -> Object:
    return with_interfaces(vm["status"][running.RUNNING].get("domain") or {}, vm["spec"].get("domain") or {}, changed)


def _only_in(one: Domain, other: Domain, runs: Domain) -> tuple[Object, ...]:
    there = _by_name(other)
    return tuple(each for name, each in _by_name(one).items() if name not in there and is_pluggable(each, runs))


def _by_name(domain: Domain) -> dict[str, Object]:
    return {str(each["name"]): each for each in interfaces.defaulted(domain)}
