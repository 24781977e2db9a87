"""Owners of replicas: Go converts entries to its Scale's and back; for our server a scale is a write to the object."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from apiserver.apis.meta.managedfields import openapi, sets
from apiserver.apis.meta.managedfields.manager import FieldManager
from tests.reference_library.program import Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_INTEGER = {"type": "integer"}
_META = {"type": "object", "properties": {"name": {"type": "string"}, "managedFields": {"type": "array", "items": {"type": "object"}}}}


def _schema(group: str, version: str, kind: str, spec: Json) -> Json:
    return {
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META, "spec": spec},
        "x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": kind}],
    }


SET = {"g.Set": _schema("g", "v1", "Set", {"type": "object", "properties": {"replicas": _INTEGER, "size": _INTEGER}})}
SCALE = {"s.Scale": _schema("autoscaling", "v1", "Scale", {"type": "object", "properties": {"replicas": _INTEGER}})}


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    with Reference() as running:
        for name, group, kind, schemas in (("set", "g", "Set", SET), ("scale", "autoscaling", "Scale", SCALE)):
            described = {"group": group, "kind": kind, "hub": "v1", "versions": ["v1"], "schemas": schemas, "empty": {}, "renamed": {}}
            assert not running.ask(op="register", schema=name, **described).error
        yield running


def _scaled_by_go(reference: Reference, live: Json, replicas: int, by: str) -> list[Json]:
    entries = live["metadata"].get("managedFields") or []
    of_scale = reference.ask(op="scale-to", live=entries, group="g", version="v1", versions=["v1"]).managed_fields
    before = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "n", "managedFields": of_scale}}
    before["spec"] = {"replicas": live["spec"].get("replicas", 0)}
    after = copy.deepcopy(before) | {"spec": {"replicas": replicas}}
    written = reference.ask(op="update", schema="scale", version="v1", subresource="scale", ignored={}, live=before, new=after, by=by)
    assert not written.error, written.error
    return reference.ask(
        op="scale-from", live=entries, entries=written.managed_fields, group="g", version="v1", versions=["v1"]
    ).managed_fields


def test_ssa_11_scale_moves_replicas_like_gos_handler(reference: Reference) -> None:
    atoms = {"g/v1": openapi.types({"components": {"schemas": SET}})["g/v1", "Set"]}
    main, scale = FieldManager("g/v1", "Set", atoms), FieldManager("g/v1", "Set", atoms, subresource="scale")
    for seed in range(300):
        dice = random.Random(seed)
        live: Json = {"apiVersion": "g/v1", "kind": "Set", "metadata": {"name": "n"}, "spec": {"replicas": 1, "size": 1}}
        main.update(None, live, "maker", NOW)
        for _ in range(dice.randint(1, 8)):
            by, replicas = dice.choice("abc"), dice.randint(1, 3)
            if dice.random() < 0.5:
                new = copy.deepcopy(live) | {"spec": {**live["spec"], "replicas": replicas}}
                theirs = _scaled_by_go(reference, live, replicas, by)
                scale.update(live, new, by, NOW)
                assert _by_owner(new) == _by_owner({"metadata": {"managedFields": theirs}}), (seed, live)
                live = new
            elif dice.random() < 0.5:
                applied = {"apiVersion": "g/v1", "kind": "Set", "metadata": {"name": "n"}, "spec": {dice.choice(("replicas", "size")): 2}}
                live = main.apply(live, applied, by, force=True, now=NOW)
            else:
                new = copy.deepcopy(live) | {"spec": {**live["spec"], dice.choice(("replicas", "size")): replicas}}
                main.update(live, new, by, NOW)
                live = new


def _by_owner(obj: Json) -> dict[tuple[str, str, str], Json]:
    """Return the ``fieldsV1`` of an object's managedFields, united by owner: manager, operation and subresource.

    Go's handler loses the time of a manager's first scale, and splits an updater's entry in two.
    """
    found: dict[tuple[str, str, str], Json] = {}
    for each in obj["metadata"].get("managedFields") or []:
        owner = each["manager"], each["operation"], each.get("subresource", "")
        found[owner] = sets.union(found.get(owner, {}), each["fieldsV1"])
    return found
