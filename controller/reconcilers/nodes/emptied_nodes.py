"""Whether a Node is drained or fenced (:mod:`apiserver.apis.virt.places.node_states`). Pure."""

from __future__ import annotations

from apiserver.apis.meta.objects import Object, dig
from apiserver.apis.virt.places import node_states


def trim(node: Object) -> Object:
    """Return the relevant part of a Node's ``spec``."""
    cordoned: Object = {"unschedulable": True} if dig(node, "spec", "unschedulable") else {}
    taints = [each for each in node_states.taints_of(node) if each.get("key") == node_states.OFF_TAINT or node_states.is_emptying(each)]
    return {**cordoned, **({"taints": [{"key": each["key"], "effect": each["effect"]} for each in taints]} if taints else {})}
