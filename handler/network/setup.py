"""Sets up the networks of a pod's guest."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import pwd
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import handler
from apiserver.apis.meta import descriptors
from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.kinds import dig_vm
from apiserver.apis.virt.places import layout, network
from apiserver.apis.virt.spec import attachments, hot_plug_interfaces
from apiserver.apis.virt.spec.described import domain_of
from handler.devices import macvtap, ownership
from handler.network import binding, bindings, departed, namespaces, removed, results
from handler.network.binding import Interface, Port, Unsupported, Wanted
from handler.network.macs import mac_address
from handler.network.namespaces import CommandFailed
from handler.plugins import answers, protocol, requests
from handler.plugins.answers import Description
from handler.plugins.calling import Own, Plugins
from handler.plugins.faults import Failed, PluginRefused, TimedOut
from handler.plugins.records import Element, Record, Records
from handler.pods.process import Launcher

logger = logging.getLogger(__name__)

PREPARE_SECONDS: Final = 70.0
"""Limit for all networks of a pod. With that of disk plugins it is shorter than a pass of a reconcile loop, which would report no error
after its own timeout.
"""
_SECONDS: Final = 60.0
"""Limit of a call of our plugins: half a dozen programs, next to guests that use all processors."""
_NEW_POD: Final = "migrate the machine (kubectl virt migrate) or restart it"
_COMMAND: Final = (sys.executable, "-S", "-P", "-m", "handler.network.plugin")


class NotInPod(Unsupported):
    """The pod lacks what a card needs, which a new pod of the machine has."""


def wanted(vm: Mapping[str, Any]) -> tuple[Wanted, ...]:
    """Return the interfaces of ``spec.domain.devices.interfaces``, in order.

    Raises Unsupported if two are on the pod's own network, or a network or MAC address is not possible.
    """
    defaulted = interfaces.defaulted(domain_of(vm))
    if sum(map(interfaces.is_on_pods_network, defaulted)) > 1:
        raise Unsupported("only one interface can use the pod's own network")
    networks = {each.interface: str(each) for each in attachments.of(vm)}
    return tuple(_wanted(vm, each, networks.get(each["name"], "")) for each in defaulted)


def _wanted(vm: Mapping[str, Any], interface: Mapping[str, Any], of_network: str) -> Wanted:
    name, given = interface["name"], interface.get("mac") or ""
    if interface.get("network") and not of_network:
        raise Unsupported(f"interface {name}: {str(interface['network'])[:80]!r} is not a valid name of a network")
    is_plugin = interface["type"] == interfaces.PLUGIN
    found = Wanted(
        name=name,
        type=interface["type"],
        mac=mac_address(vm["metadata"]["uid"], name, given) if given or of_network or interface["type"] != "bridge" else "",
        model=interface.get("model", ""),
        queues=interfaces.queues(domain_of(vm), interface.get("model", "")),
        ports=_ports(interface) if interface["type"] == "masquerade" else None,
        ipv6_first=not is_plugin and ":" in str(dig_vm(vm, "status", "podIP") or ""),
        plugin=interface.get("plugin") or "" if is_plugin else "",
        options=dict(interface.get("options") or {}) if is_plugin else {},
    )
    if not of_network and not is_plugin:
        return found
    link, bridge, tap = attachments.link(name), attachments.bridge(name), attachments.tap(name)
    return dataclasses.replace(found, network=of_network, uplink=link, bridge=bridge, tap=tap)


def with_links(asked: Sequence[Wanted], links: Collection[str], coming: Collection[str] = ()) -> tuple[Wanted, ...]:
    """Return the interfaces, each with the pod's link to its network, if any. Raises NotInPod if one in ``coming`` has no link.

    ``links``: names of the pod's links; ``coming``: names of interfaces that the pod was made without.
    """
    return tuple(_with_link(each, links, is_coming=each.name in coming) for each in asked)


def _with_link(interface: Wanted, links: Collection[str], *, is_coming: bool) -> Wanted:
    if not interface.network:
        return interface
    of_network = attachments.link_of_network(interface.name, interface.network)
    if of_network in links:
        return dataclasses.replace(interface, uplink=of_network)
    if is_coming:
        raise NotInPod(
            f"the pod has no network {interface.network}; create this NetworkAttachmentDefinition unless it exists, then {_NEW_POD}"
        )
    return interface


def _device_of(node: ownership.Node) -> str:
    return ":".join(map(str, node.number or ()))


def _require_devices(asked: Sequence[Wanted], coming: Collection[str]) -> None:
    if any(each.type == interfaces.MACVTAP and not each.device for each in asked if each.name in coming):
        raise NotInPod(f"the pod has no free device for a macvtap; {_NEW_POD}")


def _give(root: int, nodes: Iterable[ownership.Node]) -> None:
    try:
        for node in nodes:
            ownership.give(root, node)
    except (ownership.NotTheDevice, OSError) as error:
        raise CommandFailed(f"cannot move the macvtap into the pod: {error}") from error


def with_devices(asked: Sequence[Wanted], devices: Sequence[ownership.Node], links: Mapping[str, int]) -> tuple[Wanted, ...]:
    """Return the interfaces; those of type macvtap get the pod's character devices, while there are enough.

    ``links``: the pod's links, each with its index, from which a macvtap's device follows. The other macvtaps get free ones, in order.
    """
    numbers = {network.MACVTAP_INDEX + each.number[1]: _device_of(each) for each in devices if each.number}
    free = iter([number for index, number in numbers.items() if index not in links.values()])
    return tuple(
        dataclasses.replace(each, device=numbers.get(links.get(each.tap, 0)) or next(free, "")) if each.type == interfaces.MACVTAP else each
        for each in asked
    )


def _ports(interface: Mapping[str, Any]) -> tuple[Port, ...] | None:
    given = interfaces.ports(interface)
    return None if given is None else tuple(Port(each["protocol"], each["port"]) for each in given)


class Networks:
    """Sets up guests' networks by plugins: ours, one per interface type, and third parties', by name."""

    def __init__(self, theirs: Plugins | None = None, records: Records | None = None, *, prepare_seconds: float = PREPARE_SECONDS) -> None:
        """Only store the settings. ``theirs`` calls third-party plugins, by default none.

        Without ``records``, which store these calls, they get no ``DEL``.
        """
        self._prepare_seconds = prepare_seconds
        self._ours = ours()
        self._theirs = theirs or Plugins(Path(), {})
        self._records = records

    async def prepare(self, vm: Mapping[str, Any], pod_uid: str, launcher: Launcher) -> tuple[Interface, ...]:
        """Set up the pod's networks for ``vm`` and return the guest's interfaces. Idempotent.

        Raises Unsupported if a network is impossible, or this node cannot filter the guest's addresses: retrying is useless. Raises
        CommandFailed if a plugin of ours failed, Fault if a third-party one did.
        """
        return await self._prepare(vm, pod_uid, launcher)

    async def join(self, vm: Object, card: str, pod_uid: str, launcher: Launcher) -> Interface:
        """Set up one card that a running guest has or gets, and return it. Idempotent.

        Raises NotInPod if the pod lacks what the card needs; Unsupported, CommandFailed or Fault as :meth:`prepare`.
        """
        alone, there = hot_plug_interfaces.alone(vm, card), {each["name"] for each in interfaces.defaulted(domain_of(vm))}
        if not interfaces.on_macvtaps(domain_of(alone)) and not ownership.exists(launcher.root, ownership.TUN):
            raise NotInPod(f"the pod has no /dev/net/tun; {_NEW_POD}")
        (made,) = await self._prepare(alone, pod_uid, launcher, coming={card} - there)
        return made

    async def leave(self, vm: Object, card: str, pod_uid: str, launcher: Launcher) -> None:
        """Remove the tap, bridge and filters of a card that the guest gave back; then call ``DEL`` of its third-party plugin, if any.

        Idempotent. Raises CommandFailed or Fault.
        """
        with _held(launcher.network) as (descriptor, path):
            (asked,) = with_links(wanted(hot_plug_interfaces.alone(vm, card)), await _links(descriptor))
            await namespaces.run(descriptor, ("sh", "-c", removed.script(asked)))
            if asked.type == interfaces.PLUGIN and self._records is not None:
                await self._delete(self._records, Element("network", pod_uid, card), path)

    async def _delete(self, records: Records, key: Element, path: str) -> None:
        async with records.lock(key):
            if (record := records.of(key)) is not None:
                await self._theirs.call("network", record.plugin, "DEL", record.request(), {protocol.NETNS_VARIABLE: path})
                records.remove(record)

    async def _prepare(
        self, vm: Mapping[str, Any], pod_uid: str, launcher: Launcher, coming: Collection[str] = ()
    ) -> tuple[Interface, ...]:
        asked = wanted(vm)
        devices: tuple[ownership.Node, ...] = ()
        for each in asked:
            if each.type != interfaces.PLUGIN:
                bindings.binding_of(each)  # report impossible requests before any change
        with _held(launcher.network) as (descriptor, path):
            if any(each.network for each in asked):
                links = await _links(descriptor)
                devices = macvtap.nodes(launcher.root, macvtap.driver()) if interfaces.on_macvtaps(domain_of(vm)) else ()
                asked = with_devices(with_links(asked, links, coming), devices, links)
                _require_devices(asked, coming)
            # ours first: a hanging third-party plugin must not keep a running guest without filters
            ends = asyncio.get_running_loop().time() + self._prepare_seconds
            machine = requests.common(vm, pod_uid)
            made = {each: await self._in_time(ends, machine, asked[each], descriptor, path) for each in _in_turn(asked)}
        # until then the number may belong to another link of the node
        used = {each.device for each in asked}
        _give(launcher.root, (each for each in devices if _device_of(each) in used))
        return tuple(made[each] for each in range(len(asked)))

    async def _in_time(self, ends: float, machine: Mapping[str, Any], interface: Wanted, namespace: int, path: str) -> Interface:
        try:
            async with asyncio.timeout_at(ends):
                return await self._add(machine, interface, namespace, path)
        except TimeoutError as error:
            kind = TimedOut if interface.type == interfaces.PLUGIN else CommandFailed
            raise kind(
                f"interface {interface.name}: setting up all networks of the pod took longer than {self._prepare_seconds:g} s"
            ) from error

    async def _add(self, machine: Mapping[str, Any], interface: Wanted, namespace: int, path: str) -> Interface:
        is_ours = interface.type != interfaces.PLUGIN
        plugins, name = (self._ours, interface.type) if is_ours else (self._theirs, interface.plugin)
        document = over_the_wire({**machine, "interface": results.document_of(interface)})
        record = Record("network", machine["pod"]["uid"], interface.name, name, document)
        lock = self._records.lock(record.key) if self._records is not None else contextlib.nullcontext()
        try:
            async with lock:
                return await self._known(plugins, record, interface, namespace, path) or await self._made(
                    plugins, record, interface, namespace, path
                )
        except PluginRefused as error:
            raise Unsupported(str(error)) from error
        except (Failed, TimedOut) as error:
            if is_ours:
                raise CommandFailed(str(error)) from error
            raise

    async def _known(self, plugins: Plugins, record: Record, interface: Wanted, namespace: int, path: str) -> Interface | None:
        """Return the interface from an earlier call if the plugin confirms it; None: it must be made.

        ``namespace``: descriptor of the pod's network namespace; ``path``: its path for other processes.
        """
        before = self._records.of(record.key) if self._records is not None else None
        if before is None or before.result is None or (before.plugin, before.document) != (record.plugin, record.document):
            return None
        try:
            description = await plugins.describe("network", record.plugin)
            if "CHECK" not in description.commands:
                return None
            await plugins.call("network", record.plugin, "CHECK", before.request(), {protocol.NETNS_VARIABLE: path})
            return await _checked(description, record.plugin, interface, before.result, namespace)
        except (Failed, PluginRefused) as error:
            logger.warning("setting up interface %s of pod %s again: %s", interface.name, record.pod_uid, error)
            return None

    async def _made(self, plugins: Plugins, record: Record, interface: Wanted, namespace: int, path: str) -> Interface:
        description = await plugins.describe("network", record.plugin)
        is_recorded = description.commands != {"ADD"}
        if is_recorded:
            self._keep(record)  # so that its effects will be deleted in any case
        result = await plugins.call("network", record.plugin, "ADD", record.document, {protocol.NETNS_VARIABLE: path})
        made = await _checked(description, record.plugin, interface, result, namespace)
        if is_recorded:
            self._keep(record.answered(result))
        return made

    def _keep(self, record: Record) -> None:
        if self._records is None:
            return
        try:
            self._records.write(record)
        except (OSError, ValueError) as error:
            raise CommandFailed(f"cannot record the call of plugin {record.plugin}: {error}") from error


def own() -> Own:
    """Return the command that runs any of our plugins, with our ``PYTHONPATH`` and this process' PATH."""
    environment = {"PYTHONPATH": str(Path(handler.__file__).parents[1])}
    if path := os.environ.get("PATH"):
        environment["PATH"] = path
    return Own(_COMMAND, environment)


def ours() -> Plugins:
    """Return the Plugins with our network plugins, named after interface types."""
    types = {*bindings.BINDINGS, *bindings.FURTHER}
    return Plugins(Path(), {}, {("network", each): own() for each in types}, seconds=_SECONDS, patience=None)


async def forward(launcher: Launcher, others: Sequence[str]) -> bool:
    """Forward what arrives at a pod after its guest left it to ``others``, the new pod's addresses, if possible; return whether it is.

    Idempotent. Raises CommandFailed.
    """
    with _held(launcher.network) as (descriptor, _):
        rules = departed.rules(binding.observe(await namespaces.links(descriptor)), others)
        if rules:
            await namespaces.run(descriptor, ("sh", "-c", f"nft -f - <<'END'\n{rules}END\n"))
    return bool(rules)


async def _links(namespace: int) -> dict[str, int]:
    return {str(each["ifname"]): int(each["ifindex"]) for each in await namespaces.links(namespace)}


def _in_turn(asked: Sequence[Wanted]) -> list[int]:
    return sorted(range(len(asked)), key=lambda each: asked[each].type == interfaces.PLUGIN)


def over_the_wire(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a plugin reads it: converted to JSON and back."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


@contextlib.contextmanager
def _held(namespace: int) -> Iterator[tuple[int, str]]:
    """Yield a duplicate of the namespace's descriptor, which outlives the original, and its ``/proc`` path for other processes."""
    with descriptors.closing(os.dup(namespace)) as descriptor:
        yield descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"


async def _checked(description: Description, plugin: str, interface: Wanted, result: Mapping[str, Any], namespace: int) -> Interface:
    try:
        if interface.type != interfaces.PLUGIN:
            return results.of_ours(interface, result)
        made = results.of_theirs(interface, result, live_migration=description.live_migration)
    except ValueError as error:
        raise Failed(f"{answers.title(plugin, 'ADD')} returned a wrong result: {error}") from error
    await _check_tap(interface, made, namespace)
    return made


async def _check_tap(interface: Wanted, made: Interface, namespace: int) -> None:
    try:
        told = json.loads(await namespaces.run(namespace, ("ip", "-json", "-details", "link", "show", "dev", made.tap)))
    except (CommandFailed, ValueError):
        told = None
    if problem := results.tap_problem(made, told, names_of_user(), several_queues=interface.queues > 1):
        raise Failed(f"{answers.title(interface.plugin, 'ADD')} returned a wrong result: {problem}")


def names_of_user() -> frozenset[str]:
    """Return the names for the pod's user in ``ip``'s output."""
    try:
        return frozenset({str(layout.USER_ID), pwd.getpwuid(layout.USER_ID).pw_name})
    except KeyError:
        return frozenset({str(layout.USER_ID)})
