"""Give a pod the networks that its guest needs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import pwd
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import handler
from apiserver.apis.meta import objects
from apiserver.apis.virt.hardware import interfaces
from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import attachments
from apiserver.apis.virt.spec.described import domain_of
from handler.devices import macvtap, ownership
from handler.network import binding, bindings, departed, namespaces, results
from handler.network.binding import Interface, Port, Unsupported, Wanted
from handler.network.macs import mac_address
from handler.network.namespaces import CommandFailed
from handler.plugins import answers, contract, requests
from handler.plugins.answers import Description
from handler.plugins.calling import Own, Plugins
from handler.plugins.faults import Failed, PluginRefused, TimedOut
from handler.plugins.records import Record, Records
from handler.pods.process import Launcher

logger = logging.getLogger(__name__)

PREPARE_SECONDS: Final = 70.0
"""Limit of all networks of a pod. With what plugins of disks may take it is less than a pass of a reconcile loop may: what is
ended from there is no try, and nobody is told of it."""
_SECONDS: Final = 60.0
"""Seconds that a call of ours may take: half a dozen programs, each with a time of its own, beside guests that take the whole processor."""
_COMMAND: Final = (sys.executable, "-S", "-P", "-m", "handler.network.plugin")
"""Of our plugins; without the packages of others, and without what lies in the working directory."""


def wanted(vm: Mapping[str, Any]) -> tuple[Wanted, ...]:
    """Return the interfaces of ``spec.domain.devices.interfaces``, in order.

    Raises:
        Unsupported: more than one is on the pod's own network, or one has a network or a MAC address that it cannot have.
    """
    defaulted = interfaces.defaulted(domain_of(vm))
    if sum(map(interfaces.is_on_pods_network, defaulted)) > 1:
        raise Unsupported("a pod has one network of its own: more than one interface cannot be joined to it")
    networks = {each.interface: str(each) for each in attachments.of(vm)}
    return tuple(_wanted(vm, each, networks.get(each["name"], "")) for each in defaulted)


def _wanted(vm: Mapping[str, Any], interface: Mapping[str, Any], network: str) -> Wanted:
    name, given = interface["name"], interface.get("mac") or ""
    if interface.get("network") and not network:
        raise Unsupported(f"interface {name}: {str(interface['network'])[:80]!r} is no network that a pod may have")
    is_plugin = interface["type"] == interfaces.PLUGIN
    found = Wanted(
        name=name,
        type=interface["type"],
        mac=mac_address(vm["metadata"]["uid"], name, given) if given or network or interface["type"] != "bridge" else "",
        model=interface.get("model", ""),
        queues=interfaces.queues(domain_of(vm), interface.get("model", "")),
        ports=_ports(interface) if interface["type"] == "masquerade" else None,
        ipv6_first=not is_plugin and ":" in str(objects.dig(vm, "status", "podIP") or ""),
        plugin=interface.get("plugin") or "" if is_plugin else "",
        options=dict(interface.get("options") or {}) if is_plugin else {},
    )
    if not network and not is_plugin:
        return found
    link, bridge, tap = attachments.link(name), attachments.bridge(name), attachments.tap(name)
    return dataclasses.replace(found, network=network, uplink=link, bridge=bridge, tap=tap)


def _give(root: int, nodes: Iterable[ownership.Node]) -> None:
    try:
        for node in nodes:
            ownership.give(root, node)
    except (ownership.NotTheDevice, OSError) as error:
        raise CommandFailed(f"give the pod its macvtap: {error}") from error


def with_devices(asked: Sequence[Wanted], devices: Sequence[ownership.Node]) -> tuple[Wanted, ...]:
    """Return interfaces, those of type macvtap with the character devices of their pod, in order, as far as there are enough."""
    numbers = (each.number for each in devices)
    return tuple(_with_device(each, next(numbers, None)) if each.type == interfaces.MACVTAP else each for each in asked)


def _with_device(interface: Wanted, number: tuple[int, int] | None) -> Wanted:
    return dataclasses.replace(interface, device=f"{number[0]}:{number[1]}") if number else interface


def _ports(interface: Mapping[str, Any]) -> tuple[Port, ...] | None:
    given = interfaces.ports(interface)
    return None if given is None else tuple(Port(each["protocol"], each["port"]) for each in given)


class Networks:
    """The plugins by which interfaces are joined: ours by their types, and those of third parties by name."""

    def __init__(self, theirs: Plugins | None = None, records: Records | None = None, *, prepare_seconds: float = PREPARE_SECONDS) -> None:
        """Join nothing yet.

        Args:
            theirs: those of third parties.
            records: of what they were asked for, without which nothing is taken away.
            prepare_seconds: that all networks of a pod may take together.
        """
        self._prepare_seconds = prepare_seconds
        self._ours = ours()
        self._theirs = theirs or Plugins(Path(), {})
        self._records = records

    async def prepare(self, vm: Mapping[str, Any], pod_uid: str, launcher: Launcher) -> tuple[Interface, ...]:
        """Set up the pod's networks for ``vm`` and return the guest's interfaces; harmless when it is done again.

        Raises:
            Unsupported: a network cannot be as the VM asks, or this node cannot keep the guest to its addresses, now or ever.
            CommandFailed: a plugin of ours failed; try again.
            Fault: a third party's did.
        """
        devices = macvtap.nodes(launcher.root, macvtap.driver()) if interfaces.on_macvtaps(domain_of(vm)) else ()
        asked = with_devices(wanted(vm), devices)
        for each in asked:
            if each.type != interfaces.PLUGIN:
                bindings.binding_of(each)  # what cannot be at all is told before anything is done
        with _held(launcher.network) as (descriptor, path):
            # Ours first: a third party's that does not answer must not keep a running guest from its filters.
            ends = asyncio.get_running_loop().time() + self._prepare_seconds
            machine = requests.common(vm, pod_uid)
            made = {each: await self._in_time(ends, machine, asked[each], descriptor, path) for each in _in_turn(asked)}
        # Not before: until then the number may be that of another link of the node.
        _give(launcher.root, devices[: sum(bool(each.device) for each in asked)])
        return tuple(made[each] for each in range(len(asked)))

    async def _in_time(self, ends: float, machine: Mapping[str, Any], interface: Wanted, namespace: int, path: str) -> Interface:
        try:
            async with asyncio.timeout_at(ends):
                return await self._add(machine, interface, namespace, path)
        except TimeoutError as error:
            kind = TimedOut if interface.type == interfaces.PLUGIN else CommandFailed
            raise kind(
                f"interface {interface.name}: the networks of the pod took longer than {self._prepare_seconds:g} s together"
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
        """Return what a plugin made for a former pass, or process, where it says that it is still so; None: it has to be made."""
        before = self._records.of(record.key) if self._records is not None else None
        if before is None or before.result is None or (before.plugin, before.document) != (record.plugin, record.document):
            return None
        try:
            description = await plugins.describe("network", record.plugin)
            if "CHECK" not in description.commands:
                return None
            await plugins.call("network", record.plugin, "CHECK", before.request(), {contract.NETNS_VARIABLE: path})
            return await _checked(description, record.plugin, interface, before.result, namespace)
        except (Failed, PluginRefused) as error:
            logger.warning("interface %s of pod %s is made again: %s", interface.name, record.pod_uid, error)
            return None

    async def _made(self, plugins: Plugins, record: Record, interface: Wanted, namespace: int, path: str) -> Interface:
        description = await plugins.describe("network", record.plugin)
        is_recorded = description.commands != {"ADD"}
        if is_recorded:
            self._keep(record)  # before: whatever it leaves behind is taken away one day
        result = await plugins.call("network", record.plugin, "ADD", record.document, {contract.NETNS_VARIABLE: path})
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
            raise CommandFailed(f"what plugin {record.plugin} is asked for could not be kept: {error}") from error


def own() -> Own:
    """Return the executable that our plugins are, whatever their names. It finds programs where this process finds them."""
    environment = {"PYTHONPATH": str(Path(handler.__file__).parents[1])}
    if path := os.environ.get("PATH"):
        environment["PATH"] = path
    return Own(_COMMAND, environment)


def ours() -> Plugins:
    """Return our plugins, which are named like the types of interfaces."""
    types = {*bindings.BINDINGS, *bindings.FURTHER}
    return Plugins(Path(), {}, {("network", each): own() for each in types}, seconds=_SECONDS, patience=None)


async def forward(launcher: Launcher, others: Sequence[str]) -> bool:
    """Pass what comes to a pod that its guest has left on to the pod in which it is; harmless when it is done again.

    Args:
        launcher: of the pod that the guest has left.
        others: addresses of the other pod.

    Returns:
        Whether there was something to be passed on.

    Raises:
        CommandFailed: a program failed.
    """
    with _held(launcher.network) as (descriptor, _):
        rules = departed.rules(binding.observe(await namespaces.links(descriptor)), others)
        if rules:
            await namespaces.run(descriptor, ("sh", "-c", f"nft -f - <<'END'\n{rules}END\n"))
    return bool(rules)


def _in_turn(asked: Sequence[Wanted]) -> list[int]:
    return sorted(range(len(asked)), key=lambda each: asked[each].type == interfaces.PLUGIN)


def over_the_wire(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document as a plugin reads it."""
    found: dict[str, Any] = json.loads(json.dumps(document))
    return found


@contextlib.contextmanager
def _held(namespace: int) -> Iterator[tuple[int, str]]:
    """Yield a descriptor of the namespace that stays what it is until the plugin is gone, and a path of it for other processes."""
    descriptor = os.dup(namespace)
    try:
        yield descriptor, f"/proc/{os.getpid()}/fd/{descriptor}"
    finally:
        os.close(descriptor)


async def _checked(description: Description, plugin: str, interface: Wanted, result: Mapping[str, Any], namespace: int) -> Interface:
    """Return what a plugin says it made, where that is so. Raises Failed."""
    try:
        if interface.type != interfaces.PLUGIN:
            return results.of_ours(interface, result)
        made = results.of_theirs(interface, result, live_migration=description.live_migration)
    except ValueError as error:
        raise Failed(f"{answers.title(plugin, 'ADD')} lies or errs: {error}") from error
    await _check_tap(interface, made, namespace)
    return made


async def _check_tap(interface: Wanted, made: Interface, namespace: int) -> None:
    """Raise Failed where the kernel knows of no such tap as a third party's plugin says it made."""
    try:
        told = json.loads(await namespaces.run(namespace, ("ip", "-json", "-details", "link", "show", "dev", made.tap)))
    except (CommandFailed, ValueError):
        told = None
    if problem := results.tap_problem(made, told, names_of_user(), several_queues=interface.queues > 1):
        raise Failed(f"{answers.title(interface.plugin, 'ADD')} lies or errs: {problem}")


def names_of_user() -> frozenset[str]:
    """Return how ``ip`` may name the user of the pod's processes."""
    try:
        return frozenset({str(layout.USER_ID), pwd.getpwuid(layout.USER_ID).pw_name})
    except KeyError:
        return frozenset({str(layout.USER_ID)})
