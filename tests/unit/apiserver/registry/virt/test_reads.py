from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from apiserver.apis.meta import errors
from apiserver.registry.virt import reads


def wait(stack: ExitStack, waiting: reads.Waiting, namespace: str, most: int) -> int:
    for number in range(most):
        vm: dict[str, Any] = {"metadata": {"name": "vm", "namespace": namespace, "uid": f"{namespace}-{number}"}}
        try:
            stack.enter_context(waiting.one(vm, "vm"))
        except errors.TooManyRequests:
            return number
    return most


def test_namespace_leaves_read_places_to_others() -> None:
    read = reads.Waiting()
    with ExitStack() as stack:
        greedy = [wait(stack, read, f"greedy{number}", reads.MAX_WAITING) for number in range(3)]
        assert sum(greedy) < reads.MAX_WAITING
        assert wait(stack, read, "modest", 2) == 2
        while wait(stack, read, f"more{len(greedy)}", 1):
            greedy.append(1)
        assert sum(greedy) + 2 == reads.MAX_WAITING
    assert not read._waiting


def test_single_namespace_gets_a_third_of_all_places() -> None:
    with ExitStack() as stack:
        assert wait(stack, reads.Waiting(), "one", reads.MAX_WAITING) == pytest.approx(reads.MAX_WAITING / 3, abs=1)
