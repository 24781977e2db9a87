from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apis.meta import json_patch, merge_patch
from apiserver.apis.meta.errors import StatusError
from tests.reference_library.program import Reference

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_KEYS = ("a", "b", "c/d", "e~f")
_POINTERS = ("a", "b", "c~1d", "e~0f", "0", "1", "2", "-", "x")


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    with Reference() as running:
        yield running


def _value(dice: random.Random, depth: int = 3) -> Any:
    kind = dice.randrange(6 if depth else 4)
    if kind == 4:
        return {dice.choice(_KEYS): _value(dice, depth - 1) for _ in range(dice.randint(0, 3))}
    if kind == 5:
        return [_value(dice, depth - 1) for _ in range(dice.randint(0, 3))]
    return (dice.choice(("x", "y")), dice.choice((0, 1, 2.5)), dice.choice((True, False)), None)[kind]


def _document(dice: random.Random) -> dict[str, Any]:
    return {key: _value(dice) for key in _KEYS if dice.random() < 0.8}


def _path(dice: random.Random) -> str:
    return "".join("/" + dice.choice(_POINTERS) for _ in range(dice.randint(1, 3)))


def _operation(dice: random.Random) -> dict[str, Any]:
    op = dice.choice(("add", "remove", "replace", "move", "copy", "test"))
    operation: dict[str, Any] = {"op": op, "path": _path(dice)}
    if op in {"add", "replace", "test"}:
        operation["value"] = _value(dice, 2)
    if op in {"move", "copy"}:
        operation["from"] = _path(dice)
    return operation


def _patched(document: Any, patch: Any) -> Any:
    try:
        return json_patch.apply(copy.deepcopy(document), patch)
    except StatusError:
        return None


def test_pat_03_json_patches_do_what_gos_do(reference: Reference) -> None:
    for seed in range(6000):
        dice = random.Random(seed)
        document, patch = _document(dice), [_operation(dice) for _ in range(dice.choice((1, 1, 2, 3)))]
        theirs = reference.ask(op="json-patch", live=document, patch=patch)
        ours = _patched(document, patch)
        assert (ours is None) is bool(theirs.error), (seed, document, patch, ours, theirs)
        assert ours is None or json.dumps(ours, sort_keys=True) == json.dumps(theirs.object, sort_keys=True), (seed, document, patch)


def test_pat_04_merge_patches_do_what_gos_do(reference: Reference) -> None:
    for seed in range(3000):
        dice = random.Random(seed)
        document, patch = _document(dice), _document(dice)
        theirs = reference.ask(op="merge-patch", live=document, patch=patch)
        assert merge_patch.apply(copy.deepcopy(document), patch) == theirs.object, (seed, document, patch)
