from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive
from launcher.main.agent.agent import Agent
from launcher.main.agent.authorized_keys import COMMAND, MAX_PROBLEM, AuthorizedKeys, KeysState, is_due, positions_of
from launcher.main.decisions.times import Times
from launcher.protocol import messages
from launcher.protocol.messages import AccessCredential, AuthorizedKeysStatus
from tests.fakes.hypervisor import FakeHypervisor
from tests.mounted import mount
from tests.unit.launcher.main.world import MACHINE

GUEST = "guest"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me"


def a_machine(*credentials: AccessCredential) -> messages.Machine:
    return messages.Machine(MACHINE.namespace, MACHINE.name, MACHINE.uid, MACHINE.domain, "qemu", access_credentials=credentials)


def by_agent(*users: str) -> AccessCredential:
    return AccessCredential("qemuGuestAgent", users)


OFTEN = Times(keys_look=0.01, agent_round=60.0)
TRIED_AGAIN = dataclasses.replace(OFTEN, keys_retry=0.02)


class Scene:
    def __init__(self, directory: Path, times: Times) -> None:
        self.secrets = directory
        self.machine: messages.Machine | None = a_machine(AccessCredential("noCloud"), by_agent("root", "core"), by_agent("core"))
        self.users: dict[str, list[str]] = {}
        self.told: list[AuthorizedKeysStatus] = []
        self.hypervisor = FakeHypervisor()
        self.hypervisor.answers = {COMMAND: self.set}
        self.agent = Agent(self.hypervisor, answered=lambda _: None, unresponsive=lambda _: None, gone=lambda: None, times=times)
        self.keys = AuthorizedKeys(self.agent, machine=lambda: self.machine, reported=self.told.append, times=times)

    def set(self, arguments: Mapping[str, Any]) -> object:
        assert arguments["reset"] is True
        self.users[arguments["username"]] = arguments["keys"]
        return {}

    def become(self, state: State = State.RUNNING, *, connected: bool = True) -> None:
        self.hypervisor.become(GUEST, state, "booted", agent=connected)
        self.agent.take(self.hypervisor.domains[GUEST])

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    @property
    def sets(self) -> int:
        return len([command for command, _ in self.hypervisor.questions if command == COMMAND])


@pytest.fixture
async def scene(tmp_path: Path, pod_directories: Callable[..., None], times: Times) -> Scene:
    pod_directories(ACCESS_CREDENTIALS=tmp_path)
    return Scene(tmp_path, times)


@pytest.fixture
def times() -> Times:
    return OFTEN


@asynccontextmanager
async def kept(scene: Scene) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scene.keys.run())
        yield
        running.cancel()


def test_users_are_mapped_to_their_credentials() -> None:
    machine = a_machine(AccessCredential("noCloud", ("root",)), by_agent("root", "core"), by_agent("core"))
    assert positions_of(machine) == {"root": (1,), "core": (1, 2)}
    assert positions_of(None) == positions_of(MACHINE) == {}


async def test_keys_of_all_secrets_are_set_on_connect_and_on_change(scene: Scene) -> None:
    mount(scene.secrets / "1", {"a": b"ssh-rsa A\nssh-rsa B\n"})
    mount(scene.secrets / "2", {"c": b"ssh-rsa B\nssh-rsa C\n"})
    async with kept(scene):
        scene.become(connected=False)
        await asyncio.sleep(0.05)
        assert scene.sets == 0
        scene.become()
        await scene.until(lambda: scene.told)
        assert scene.users == {"root": ["ssh-rsa A", "ssh-rsa B"], "core": ["ssh-rsa A", "ssh-rsa B", "ssh-rsa C"]}
        assert scene.told == [AuthorizedKeysStatus("synchronized")]
        await asyncio.sleep(0.05)
        assert scene.sets == 2

        mount(scene.secrets / "2", {})
        await scene.until(lambda: scene.sets == 4)
        await scene.until(lambda: len(scene.told) == 2)
        assert scene.users["core"] == ["ssh-rsa A", "ssh-rsa B"]

        scene.become(connected=False)
        await asyncio.sleep(0.05)
        scene.become()
        await scene.until(lambda: scene.sets == 6)


async def test_no_keys_are_set_in_a_paused_or_foreign_guest(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})
    machine = scene.machine
    async with kept(scene):
        scene.become(State.PAUSED)
        await asyncio.sleep(0.05)
        scene.machine = None
        scene.become()
        await asyncio.sleep(0.05)
        assert scene.sets == 0
        scene.machine = machine
        await scene.until(lambda: scene.told)


@pytest.mark.parametrize("times", [TRIED_AGAIN])
async def test_a_refusal_is_told_without_the_keys_and_tried_again(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})
    words = iter([AgentRefused(f"invalid key '{KEY.split()[1]}'"), AgentRefused("user 'root'\ndoes not exist"), {}, {}])
    scene.hypervisor.answers = {COMMAND: lambda arguments: next(words) if arguments["username"] == "root" else {}}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: len(scene.told) == 3)
    assert [each.state for each in scene.told] == ["failed", "failed", "synchronized"]
    assert scene.told[0].message == "user root: the guest agent rejected its keys; set for core"
    assert scene.told[1].message.startswith("user root: user 'root'")
    assert "\n" not in scene.told[1].message


async def test_missing_user_does_not_block_the_keys_of_others(scene: Scene) -> None:
    unknown = {f"nosuchuser{number}" for number in range(8)}
    scene.machine = a_machine(by_agent(*sorted(unknown), "debian", "core"))
    mount(scene.secrets / "0", {"a": KEY.encode()})

    def answer(arguments: Mapping[str, Any]) -> object:
        user = arguments["username"]
        if user in unknown:
            raise AgentRefused(f"failed to lookup user '{user}': Success")
        return scene.set(arguments)

    scene.hypervisor.answers = {COMMAND: answer}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
    assert set(scene.users) == {"debian", "core"}
    message = scene.told[0].message
    assert message.startswith("user nosuchuser0: failed to lookup user 'nosuchuser0'; user nosuchuser1: failed")
    assert message.endswith("; set for debian, core")
    assert len(message) <= MAX_PROBLEM


async def test_silent_agent_is_not_asked_for_each_user(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})
    scene.hypervisor.answers = {COMMAND: AgentUnresponsive("the guest agent does not answer")}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
    assert scene.sets == 1
    assert scene.told[0].message == "user root: the guest agent does not answer"


async def test_no_line_of_a_log_has_a_key(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})
    scene.hypervisor.answers = {COMMAND: AgentRefused(f"invalid key '{KEY}'")}
    caplog.set_level(0)
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
    assert caplog.records
    assert not [each for each in caplog.records if KEY.split()[1] in str(vars(each))]


async def test_secret_changed_during_the_setting_is_read_again(scene: Scene) -> None:
    mount(scene.secrets / "1", {"a": b"ssh-rsa OLD\n"})
    mount(scene.secrets / "2", {})

    def change(arguments: Mapping[str, Any]) -> object:
        if arguments["keys"] == ["ssh-rsa OLD"]:
            mount(scene.secrets / "1", {"a": b"ssh-rsa NEW\n"})
        return scene.set(arguments)

    scene.hypervisor.answers = {COMMAND: change}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.users.get("root") == ["ssh-rsa NEW"] and scene.users.get("core") == ["ssh-rsa NEW"])


@pytest.mark.parametrize("times", [TRIED_AGAIN])
async def test_a_guest_that_stops_meanwhile_is_tried_again(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})

    def pause(arguments: Mapping[str, Any]) -> object:
        scene.become(State.PAUSED)
        return scene.set(arguments)

    scene.hypervisor.answers = {COMMAND: pause}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
        assert (scene.told[0].state, "the guest is paused" in scene.told[0].message) == ("failed", True)
        scene.hypervisor.answers = {COMMAND: scene.set}
        scene.become()
        await scene.until(lambda: scene.told[-1].state == "synchronized")


async def test_a_secret_that_is_not_mounted_is_told_with_its_field(scene: Scene) -> None:
    mount(scene.secrets / "1", {"a": KEY.encode()})
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
    assert scene.told == [AuthorizedKeysStatus("failed", "spec.accessCredentials[2]: its Secret: it is not mounted")]
    assert scene.users == {}


async def test_another_agent_is_tried_at_once(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": KEY.encode()})
    scene.hypervisor.answers = {COMMAND: AgentRefused("no")}
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
        scene.become(connected=False)
        await asyncio.sleep(0.05)
        scene.hypervisor.answers = {COMMAND: scene.set}
        scene.become()
        await scene.until(lambda: scene.told[-1].state == "synchronized")


async def test_the_keys_of_all_secrets_of_a_user_are_not_too_many(scene: Scene) -> None:
    for position in (1, 2):
        mount(scene.secrets / str(position), {"a": "".join(f"ssh-rsa {position}-{each}\n" for each in range(33)).encode()})
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
    assert scene.told == [AuthorizedKeysStatus("failed", "spec.accessCredentials: there are 66 public keys, more than 64")]
    assert scene.sets == 0


async def test_a_failure_is_not_repeated_all_the_time(scene: Scene) -> None:
    mount(scene.secrets / "1", {"a": b"\x00"})
    mount(scene.secrets / "2", {"a": KEY.encode()})
    async with kept(scene):
        scene.become()
        await scene.until(lambda: scene.told)
        await asyncio.sleep(0.1)
    assert len(scene.told) == 1
    assert scene.told[0].message == "spec.accessCredentials[1]: line 1 of the value of 'a' in its Secret is not a public key"
    assert scene.sets == 0


@pytest.mark.parametrize(
    ("state", "versions", "due"),
    [
        (KeysState(), {1: "a"}, True),
        (KeysState(), {}, False),
        (KeysState({1: "a"}), {1: "a"}, False),
        (KeysState({1: "a"}), {1: "b"}, True),
        (KeysState({1: "a"}), {1: "a", 2: ""}, True),
        (KeysState(retry=10.5), {1: "a"}, False),
        (KeysState(retry=10.0), {1: "a"}, True),
    ],
)
def test_keys_are_due_when_changed_and_not_retried_too_soon(state: KeysState, versions: dict[int, str], *, due: bool) -> None:
    assert is_due(state, versions, 10.0) is due
