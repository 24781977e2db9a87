from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from controller.reconcilers.fencing import fence_agent
from controller.reconcilers.fencing.fence_agent import Executable, Failed

OFF = '{"version": "1.0.0", "state": "off"}'
NODE: dict[str, Any] = {
    "metadata": {"name": "node1", "uid": "u", "labels": {"rack": "a"}, "annotations": {"bmc": "b"}},
    "spec": {"providerID": "p"},
    "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}], "nodeInfo": {"bootID": "boot"}},
}


def agent(directory: Path, script: str, seconds: float = 10) -> Executable:
    path = directory / "agent"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Executable(path, seconds)


async def test_the_agent_gets_the_node_and_proves_that_it_is_off(tmp_path: Path) -> None:
    await agent(tmp_path, f"cat >{tmp_path}/asked; env >{tmp_path}/env; echo '{OFF}'").switch_off(NODE)
    assert json.loads((tmp_path / "asked").read_text()) == {
        "version": "1.0.0",
        "command": "OFF",
        "node": {
            "name": "node1",
            "uid": "u",
            "labels": {"rack": "a"},
            "annotations": {"bmc": "b"},
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "providerID": "p",
            "bootID": "boot",
        },
    }
    assert not {"HOME", "KUBERNETES_SERVICE_HOST"} & {line.split("=")[0] for line in (tmp_path / "env").read_text().splitlines()}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"echo '{OFF}'; exit 1", "exit status 1"),
        ('echo \'{"version": "1.0.0", "state": "on"}\'', "exit status 0"),
        ('echo \'{"version": "2.0.0", "state": "off"}\'', "exit status 0"),
        ('echo \'{"version": "1.0.0", "state": "off", "dry": true}\'', "exit status 0"),
        ("exit 3", "exit status 3, without a message"),
        ("echo off", "exit status 0: off"),
        ('echo \'{"version": "1.0.0", "msg": "no board"}\'; exit 1', "exit status 1: no board"),
        ("echo a >&2; echo b >&2; exit 1", "exit status 1: a"),
        (f"yes | head -c 70000; echo '{OFF}'", "more than 64 KiB"),
        ("kill -9 $$", "exit status -9"),
    ],
)
async def test_every_other_answer_proves_nothing(tmp_path: Path, script: str, said: str) -> None:
    with pytest.raises(Failed) as failed:
        await agent(tmp_path, script).switch_off(NODE)
    assert said in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_missing_agent_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file"):
        await Executable(tmp_path / "none", 1).switch_off(NODE)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"


async def gone(pids: list[int]) -> None:
    async with asyncio.timeout(10):
        while any(lives(each) for each in pids):
            await asyncio.sleep(0.01)


async def test_all_processes_of_a_late_call_end(tmp_path: Path) -> None:
    hanging = f"sleep 100 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/own; wait"
    with pytest.raises(Failed, match="no answer within"):
        await agent(tmp_path, hanging, 1).switch_off(NODE)
    await gone([int((tmp_path / each).read_text()) for each in ("own", "child")])


async def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    own = tmp_path / "own"
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        call = tasks.create_task(agent(tmp_path, f"echo $$ >{own}; sleep 100").switch_off(NODE))
        while not (own.exists() and own.read_text()):
            await asyncio.sleep(0.01)
        call.cancel()
    assert call.cancelled()
    await gone([int(own.read_text())])


async def test_a_call_that_is_cancelled_at_its_start_leaves_no_process(tmp_path: Path) -> None:
    own, child = tmp_path / "own", tmp_path / "child"
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        call = tasks.create_task(agent(tmp_path, f"sleep 100 & echo $! >{child}; echo $$ >{own}; wait").switch_off(NODE))
        for _ in range(2):
            await asyncio.sleep(0)  # the agent runs, and asyncio has not connected its pipes
        for _ in range(1000):
            if own.exists() and own.read_text():
                break
            time.sleep(0.01)
        call.cancel()
    assert call.cancelled()
    await gone([int(each.read_text()) for each in (own, child)])


def test_words_of_an_agent_are_bounded() -> None:
    with pytest.raises(Failed) as failed:
        fence_agent.check(1, b"x" * 5000)
    assert len(str(failed.value)) < fence_agent.MAX_WORDS + 40
