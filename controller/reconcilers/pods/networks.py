"""The NetworkAttachmentDefinitions that a machine names: those that there are not, and those of which no node can make a network.

They are asked for one by one where a machine is to start, and while its pod does: whether the cluster has such a resource at all is
its administrator's affair, and a copy of all of them would be kept for few machines.
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
from apiserver.apis.virt.spec import attachments
from apiserver.client.rest import Client
from controller.reconcilers.pods import pod_state

MAX_CONFIGURATION: Final = 64 << 10
"""Characters of a configuration that is judged here; what is longer, the nodes' plugins judge alone."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A NetworkAttachmentDefinition, read."""

    network: str
    """namespace/name"""
    called: str
    """The name in its configuration, by which plugins speak of it; its own where that has none."""
    problem: str = ""
    """Reason why its configuration is none of CNI; empty where nothing is known against it."""


@dataclass(frozen=True, slots=True)
class Found:
    """Networks that a machine names, as far as they were found."""

    missing: tuple[str, ...] = ()
    """Networks, as namespace/name, of which there is no NetworkAttachmentDefinition."""
    definitions: tuple[Definition, ...] = ()
    """The others, as far as they may be read."""


async def gather(client: Client, vm: Object) -> Found:
    """Return what there is of the networks that a machine names."""
    missing, definitions = [], []
    for namespace, name in dict.fromkeys((each.namespace, each.name) for each in attachments.of(vm)):
        try:
            found = await client.get(attachments.NETWORK_ATTACHMENT_DEFINITIONS, name, namespace)
        except errors.NotFound:  # the resource itself may be absent, too
            missing.append(f"{namespace}/{name}")
        except errors.Forbidden:  # by an older chart, or by whoever restricts this one: then the pod's own Events tell
            continue
        else:
            definitions.append(read(namespace, name, found))
    return Found(tuple(missing), tuple(definitions))


def read(namespace: str, name: str, definition: Object) -> Definition:
    """Return what a NetworkAttachmentDefinition says; one without ``spec.config`` means a file of that name on the nodes."""
    given, network = dig(definition, "spec", "config"), f"{namespace}/{name}"
    if not given or not isinstance(given, str) or len(given) > MAX_CONFIGURATION:
        return Definition(network, name)
    try:
        configuration = json.loads(given)
    except (ValueError, RecursionError) as error:
        return Definition(network, name, f"spec.config is no JSON: {_words(error)}")
    if not isinstance(configuration, dict):
        return Definition(network, name, "spec.config is no JSON object")
    fields = {key.lower(): value for key, value in configuration.items()}  # as Go reads them
    called = fields.get("name")
    return Definition(network, called if called and isinstance(called, str) else name, _problem(fields))


def _words(error: ValueError | RecursionError) -> str:
    return str(error) if isinstance(error, json.JSONDecodeError) else "it is nested too deeply, or has a number that is too long"


def _problem(fields: Mapping[str, object]) -> str:
    """Return why no plugin can be started for a configuration (CNI specification 1.1, section 1), or an empty string."""
    if fields.get("type"):
        return ""
    plugins = fields.get("plugins")
    if not isinstance(plugins, list) or not plugins:
        return "spec.config names no plugin: it has neither type nor plugins"
    first = plugins[0]
    return (
        ""
        if isinstance(first, dict) and any(key.lower() == "type" and first[key] for key in first)
        else "spec.config: a plugin has no type"
    )


def fault(found: Found, follows: str = "virtual machine starts") -> tuple[str, str] | None:
    """Return (reason, message) of what keeps any node from making the networks, or None.

    Args:
        found: networks that the machine names.
        follows: begins once nothing of this is wrong.
    """
    if found.missing:
        text = f"NetworkAttachmentDefinition not found: {', '.join(found.missing)}; the {follows} when it exists"
        return conditions.NETWORK_NOT_FOUND, one_line(text, pod_state.MAX_MESSAGE)
    if broken := [f"{each.network}: {each.problem}" for each in found.definitions if each.problem]:
        text = f"NetworkAttachmentDefinition {'; '.join(broken)}; the {follows} when that is mended"
        return conditions.NETWORK_NOT_USABLE, one_line(text, pod_state.MAX_MESSAGE)
    return None
