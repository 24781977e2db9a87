from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from handler.plugins import calling, protocol
from handler.plugins.calling import Own, Plugins
from handler.plugins.faults import Failed, NotFound, PluginRefused, TimedOut
from handler.plugins.protocol import Command
from tests.given_time import Deadline

pytestmark = pytest.mark.host

DESCRIPTION = '{"version": "1.0.0", "supportedVersions": ["1.0.0"], "kinds": ["network"]}'
FINE = '{"version": "1.0.0", "tap": "tap0"}'
SLEEP = 1000 + secrets.randbelow(1 << 30)
"""A duration in seconds that identifies the tests' ``sleep`` processes."""

Make = Callable[..., Plugins]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(add: str, seconds: float = 20.0) -> Plugins:
        script = f"#!/bin/sh\nif [ $KUBEVIRT_COMMAND = VERSION ]; then echo '{DESCRIPTION}'; exit; fi\n{add}\n"
        (tmp_path / "lan").write_text(script)
        (tmp_path / "lan").chmod(0o755)
        return Plugins(tmp_path, {"network": frozenset({"lan", "absent", "text"})}, seconds=seconds)

    return make


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    yield
    deadline = Deadline(30)
    while sleepers():
        assert not deadline.is_over, sleepers()
        time.sleep(0.05)
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors


def sleepers() -> list[str]:
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and f"sleep\0{SLEEP}".encode() in (each / "cmdline").read_bytes():
                found.append(each.name)
    return found


async def test_plugin_gets_its_document_and_environment_only(make: Make) -> None:
    evil = "$(touch /tmp/evil); `reboot` 'ä'"
    told = await make(
        """set -e; read -r line; [ $# = 0 ]; [ "$(pwd)" = / ]; echo "{\\"version\\": \\"1.0.0\\", \\"tap\\": $line}"; env >&2"""
    ).call("network", "lan", "ADD", {"options": {"x": evil}}, {protocol.NETNS_VARIABLE: "/proc/7/fd/8"})
    assert told["tap"] == {"version": "1.0.0", "kind": "network", "plugin": "lan", "options": {"x": evil}}


async def test_the_environment_holds_nothing_of_ours(make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("SECRET", "swordfish")
    with caplog.at_level(logging.INFO):
        await make(f"env >&2; echo '{FINE}'").call("network", "lan", "ADD", {}, {protocol.NETNS_VARIABLE: "/proc/7/fd/8"})
    (record,) = (each for each in caplog.messages if "plugin lan (ADD): " in each)
    assert "KUBEVIRT_COMMAND=ADD" in record
    assert "KUBEVIRT_NETNS=/proc/7/fd/8" in record
    assert "KUBEVIRT_NODE_NETNS=/proc/1/ns/net" in record
    assert "swordfish" not in record
    assert record.isprintable()


@pytest.mark.parametrize("add", [f"sleep {SLEEP}", f"trap '' TERM; (setsid sleep {SLEEP} &) ; sleep {SLEEP}"], ids=["plain", "stubborn"])
async def test_hanging_plugin_is_ended_with_its_children(make: Make, add: str) -> None:
    plugins = make(add, 2.0)
    with pytest.raises(TimedOut, match=r"^plugin lan \(ADD\) did not answer within 2 s and was killed$"):
        await plugins.call("network", "lan", "ADD", {})


async def test_hanging_plugin_ends_when_its_caller_is_cancelled(make: Make) -> None:
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(make(f"setsid sleep {SLEEP}").call("network", "lan", "ADD", {}))
        while not sleepers():
            await asyncio.sleep(0.05)
        call.cancel()
    assert call.cancelled()


async def test_daemon_holding_stdout_neither_delays_nor_survives(make: Make) -> None:
    found = await make(f"setsid sleep {SLEEP} & echo '{FINE}'").call("network", "lan", "ADD", {})
    assert found["tap"] == "tap0"


@pytest.mark.parametrize("stream", ["", ">&2"], ids=["output", "errors"])
async def test_a_flood_is_cut_off(make: Make, stream: str) -> None:
    with pytest.raises(Failed, match="wrote more output than allowed and was killed"):
        await make(f"yes flood {stream}").call("network", "lan", "ADD", {})


@pytest.mark.parametrize(
    ("add", "fault", "words"),
    [
        ("echo garbage", Failed, "did not write a JSON object"),
        (f"echo '{FINE}'; exit 1", Failed, "exited with status 1 and wrote no"),
        ("""echo '{"code": 5, "msg": "no"}'""", Failed, "reported an error but exited with status 0"),
        ("""echo '{"code": 7, "msg": "no such vlan"}'; exit 1""", PluginRefused, r"no such vlan \(code 7\)"),
        ("kill -SEGV $$", Failed, "did not write a JSON object|was killed by signal|exited with status"),
    ],
)
async def test_lying_plugins_are_reported(make: Make, add: str, fault: type[Exception], words: str) -> None:
    with pytest.raises(fault, match=words):
        await make(add).call("network", "lan", "ADD", {})


async def test_a_long_document_for_one_that_does_not_read_it(make: Make) -> None:
    assert (await make(f"echo '{FINE}'").call("network", "lan", "ADD", {"options": {"x": "y" * (1 << 20)}}))["tap"] == "tap0"


@pytest.mark.parametrize("name", ["absent", "text", "other", "../sh", "directory", "/bin/sh", "lan\n"])
async def test_unknown_plugins_are_not_run(make: Make, tmp_path: Path, name: str) -> None:
    plugins = make(f"echo '{FINE}'")
    (tmp_path / "text").write_text("echo this is no program\n")
    (tmp_path / "text").chmod(0o755)
    (tmp_path / "other").symlink_to(tmp_path / "lan")
    (tmp_path / "directory").mkdir()
    with pytest.raises(NotFound) as fault:
        await plugins.call("network", name, "ADD", {})
    assert str(fault.value).isprintable()


async def test_a_plugin_that_is_replaced_is_asked_again_what_it_is(make: Make, tmp_path: Path) -> None:
    plugins = make(f"echo '{FINE}'")
    assert not (await plugins.describe("network", "lan")).live_migration
    with pytest.raises(NotFound, match="is not enabled for storage"):
        await plugins.describe("storage", "lan")
    new = tmp_path / "new"
    new.write_text(f"#!/bin/sh\necho '{json.dumps({**json.loads(DESCRIPTION), 'liveMigration': True})}'\n")
    new.chmod(0o755)
    new.rename(tmp_path / "lan")
    assert (await plugins.describe("network", "lan")).live_migration


async def test_hanging_plugin_leaves_turns_to_others(make: Make, tmp_path: Path) -> None:
    plugins = make(f"sleep {SLEEP}", 4.0)
    (tmp_path / "absent").write_text(f"#!/bin/sh\n[ $KUBEVIRT_COMMAND != VERSION ] || {{ echo '{DESCRIPTION}'; exit; }}; echo '{FINE}'\n")
    (tmp_path / "absent").chmod(0o755)
    faults = []

    async def hang() -> None:
        try:
            await plugins.call("network", "lan", "ADD", {})
        except TimedOut as fault:
            faults.append(str(fault))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(calling.AT_ONCE + 2):
            tasks.create_task(hang())
        while len(sleepers()) < calling.AT_ONCE - 1:
            await asyncio.sleep(0.05)
        assert (await plugins.call("network", "absent", "ADD", {}))["tap"] == "tap0"
    assert len(faults) == calling.AT_ONCE + 2


async def test_tenants_calls_leave_a_turn_of_a_plugin_to_others(make: Make) -> None:
    """The first tenant's calls take the whole timeout, because its server is silent."""
    plugins = make(f"read -r line; case $line in *greedy*) sleep {SLEEP};; esac; echo '{FINE}'", 6.0)
    done = []

    async def call(namespace: str, command: Command) -> None:
        with contextlib.suppress(TimedOut):
            await plugins.call("network", "lan", command, {"machine": {"namespace": namespace}})
            done.append(namespace)

    async with asyncio.TaskGroup() as tasks:
        greedy = [tasks.create_task(call("greedy", "ADD")) for _ in range(3 * calling.AT_ONCE)]
        while len(sleepers()) < calling.AT_ONCE - 1:
            await asyncio.sleep(0.05)
        for command in protocol.COMMANDS * 2:
            await call("modest", command)
        assert sleepers()
        for each in greedy:
            each.cancel()
    assert done == ["modest"] * 6


async def test_calls_of_ours_together_are_few(tmp_path: Path) -> None:
    script = f"[ $KUBEVIRT_COMMAND = VERSION ] || {{ echo x >>{tmp_path}/begun; sleep {SLEEP}; }}; echo '{DESCRIPTION}'"
    own = Own(("sh", "-c", script), {})
    plugins = Plugins(tmp_path, {}, {("network", each): own for each in ("a", "b", "c")}, seconds=4.0, patience=None)

    async def call(name: str, namespace: str) -> None:
        with pytest.raises(TimedOut):
            await plugins.call("network", name, "ADD", {"machine": {"namespace": namespace}})

    most = 0
    async with asyncio.TaskGroup() as tasks:
        calls = [tasks.create_task(call(name, namespace)) for name in ("a", "b", "c") for namespace in ("x", "y")]
        while not all(each.done() for each in calls):
            most = max(most, len(sleepers()))
            await asyncio.sleep(0.05)
    assert most == calling.OURS_AT_ONCE


async def test_plugin_exhausting_memory_is_ended(make: Make) -> None:
    fills = "python3 -c 'held = [bytearray(1 << 20) for _ in range(4096)]'"
    with pytest.raises(Failed, match=r"exited with status 1 and wrote no JSON error"):
        await make(f"{fills} || exit 1; echo '{FINE}'").call("network", "lan", "ADD", {})


async def test_unneeded_commands_are_not_sent(make: Make, tmp_path: Path) -> None:
    make("exit 1")
    needs = json.dumps({**json.loads(DESCRIPTION), "commands": ["ADD"]})
    (tmp_path / "lan").write_text(f"#!/bin/sh\n[ $KUBEVIRT_COMMAND != VERSION ] || {{ echo '{needs}'; exit; }}; exit 1\n")
    plugins = Plugins(tmp_path, {"network": frozenset({"lan"})})
    assert [await plugins.call("network", "lan", each, {}) for each in protocol.COMMANDS[1:]] == [{}, {}]
    with pytest.raises(Failed):
        await plugins.call("network", "lan", "ADD", {})
