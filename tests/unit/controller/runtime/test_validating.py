from __future__ import annotations

from typing import Any

import pytest

from apiserver.apis.core.resources import PODS
from controller.runtime.reconciling import Request, Result, Terminal
from controller.runtime.validating import Validated
from tests.unit.controller.virtualtime import run

OBJECTS: dict[str, Any] = {name: {"metadata": {"name": name}, "says": name} for name in ("sound", "strange")}


class World:
    def __init__(self) -> None:
        self.looked_at: list[str] = []
        self.events: list[tuple[str, str, str]] = []

    def get(self, namespace: str, name: str) -> Any:
        return OBJECTS.get(name)

    def event(self, obj: Any, resource: Any, type_: str, reason: str, message: str) -> None:
        self.events.append((obj["metadata"]["name"], reason, message))

    async def reconcile(self, request: Request) -> Result:
        self.looked_at.append(request.name)
        return Result()


def a_validated(world: World, fault: str = "status must be an object, not a list") -> Validated:
    return Validated(world, world, world, PODS, lambda obj: [fault] if obj["says"] == "strange" else [])


def test_sound_and_absent_objects_get_through() -> None:
    world = World()
    for name in ("sound", "absent"):
        assert run(a_validated(world).reconcile(Request("ns", name))) == Result()
    assert world.looked_at == ["sound", "absent"]
    assert not world.events


def test_unsound_object_gets_an_event_and_waits_for_a_change() -> None:
    world = World()
    with pytest.raises(Terminal, match="must be an object"):
        run(a_validated(world).reconcile(Request("ns", "strange")))
    assert not world.looked_at
    ((name, reason, message),) = world.events
    assert (name, reason) == ("strange", "InvalidObject")
    assert "status must be an object, not a list" in message


def test_unsound_object_message_is_one_bounded_line() -> None:
    world = World()
    with pytest.raises(Terminal):
        run(a_validated(world, "\x1b[31m" + "x" * 100_000 + "\n").reconcile(Request("ns", "strange")))
    assert len(world.events[0][2]) <= 1000
    assert world.events[0][2].isprintable()
