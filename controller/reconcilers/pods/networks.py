"""Checks that the NetworkAttachmentDefinitions of a machine exist and are valid.

They are read when a machine is to start and while its pod starts. There is no informer, because the resource may not exist in the cluster
and few machines use it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.apis.meta import errors
from apiserver.apis.meta.lines import one_line
from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.lifecycle import conditions
from apiserver.apis.virt.spec import attachments, hot_plug_interfaces
from apiserver.client.rest import Client
from controller.reconcilers.pods import pod_state

MAX_CONFIGURATION: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Definition:
    """A parsed NetworkAttachmentDefinition."""

    network: str
    """namespace/name"""
    called: str
    """The name in its configuration, as in plugins' messages, or the object's name."""
    problem: str = ""
    """Why its configuration is not valid CNI."""


@dataclass(frozen=True, slots=True)
class Found:
    """A machine's NetworkAttachmentDefinitions, and the names of missing ones."""

    missing: tuple[str, ...] = ()
    definitions: tuple[Definition, ...] = ()


async def gather(client: Client, vm: Object) -> Found:
    """Read the machine's networks; return definitions and names of missing ones, without those that virt-controller may not read."""
    missing, definitions = [], []
    for namespace, name in dict.fromkeys((each.namespace, each.name) for each in attachments.of(vm)):
        try:
            found = await client.get(attachments.NETWORK_ATTACHMENT_DEFINITIONS, name, namespace)
        except errors.NotFound:
            missing.append(f"{namespace}/{name}")
        except errors.Forbidden:  # by an older or restricted chart
            continue
        else:
            definitions.append(read(namespace, name, found))
    return Found(tuple(missing), tuple(definitions))


async def coming(client: Client, vm: Object) -> tuple[str, ...]:
    """Return the names of network cards that a running guest can get in a new pod, because their networks are usable."""
    if not hot_plug_interfaces.takes_interfaces(vm):
        return ()
    names = [str(each["name"]) for each in hot_plug_interfaces.coming(vm)]
    used = {each.interface: each for each in attachments.of(hot_plug_interfaces.with_coming(vm, names)) if each.interface in names}
    usable = [name for name in names if name not in used or await _is_usable(client, used[name])]
    return tuple(usable)


async def _is_usable(client: Client, attachment: attachments.Attachment) -> bool:
    try:
        found = await client.get(attachments.NETWORK_ATTACHMENT_DEFINITIONS, attachment.name, attachment.namespace)
    except (errors.NotFound, errors.Forbidden):
        return False
    return not read(attachment.namespace, attachment.name, found).problem


def read(namespace: str, name: str, definition: Object) -> Definition:
    """Return a NetworkAttachmentDefinition's name and problem; without ``spec.config`` it refers to a file of that name on the nodes."""
    given, network = dig(definition, "spec", "config"), f"{namespace}/{name}"
    if not given or not isinstance(given, str) or len(given) > MAX_CONFIGURATION:
        return Definition(network, name)
    try:
        configuration = json.loads(given)
    except (ValueError, RecursionError) as error:
        return Definition(network, name, f"spec.config is not valid JSON: {_words(error)}")
    if not isinstance(configuration, dict):
        return Definition(network, name, "spec.config is not a JSON object")
    fields = {key.lower(): value for key, value in configuration.items()}  # Go ignores case
    called = fields.get("name")
    return Definition(network, called if called and isinstance(called, str) else name, _problem(fields))


def _words(error: ValueError | RecursionError) -> str:
    return str(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply or contains a number with too many digits"


def _problem(fields: Mapping[str, object]) -> str:
    if fields.get("type"):
        return ""
    plugins = fields.get("plugins")
    if not isinstance(plugins, list) or not plugins:
        return "spec.config names no CNI plugin: set type or plugins"
    first = plugins[0]
    return (
        ""
        if isinstance(first, dict) and any(key.lower() == "type" and first[key] for key in first)
        else "spec.config: a plugin has no type"
    )


def fault(found: Found, follows: str = "virtual machine starts") -> tuple[str, str] | None:
    """Return (reason, message) of a fault in the networks that affects every node, or None.

    ``follows`` is what begins after the fault is fixed.
    """
    if found.missing:
        text = f"NetworkAttachmentDefinition not found: {', '.join(found.missing)}; the {follows} when it exists"
        return conditions.NETWORK_NOT_FOUND, one_line(text, pod_state.MAX_MESSAGE)
    if broken := [f"{each.network}: {each.problem}" for each in found.definitions if each.problem]:
        text = f"NetworkAttachmentDefinition {'; '.join(broken)}; the {follows} once that is fixed"
        return conditions.NETWORK_NOT_USABLE, one_line(text, pod_state.MAX_MESSAGE)
    return None
