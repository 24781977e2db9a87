from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apis.meta.objects import Object
from apiserver.apis.virt.spec import guestinfo
from launcher.domain.states import State
from launcher.hypervisor.port import AgentRefused, AgentUnresponsive, HypervisorError, Unavailable
from launcher.main.agent.agent import Agent
from launcher.main.decisions import agent_answers, agent_status
from launcher.main.decisions.refusal import RequestRefused
from launcher.main.decisions.times import Times
from launcher.protocol import codec
from tests.fakes.hypervisor import FakeHypervisor

MAC = "52:54:00:00:00:0a"
ANSWERS: dict[str, object] = {
    "guest-info": {"version": "7.2.22", "supported_commands": [{"name": "guest-get-users", "enabled": True}]},
    "guest-get-host-name": {"host-name": "web-1"},
    "guest-get-osinfo": {"id": "debian", "pretty-name": "Debian GNU/Linux 12 (bookworm)", "version-id": "12", "kernel-release": "6.1.0"},
    "guest-get-timezone": {"zone": "CET", "offset": 3600},
    "guest-get-users": [{"user": "root", "login-time": 1700000000.25}],
    "guest-get-fsinfo": [
        {
            "name": "vda1",
            "mountpoint": "/",
            "type": "ext4",
            "total-bytes": 100,
            "used-bytes": 40,
            "disk": [{"dev": "/dev/vda1", "serial": "s1", "bus-type": "virtio"}],
        }
    ],
    "guest-network-get-interfaces": [
        {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
        {
            "name": "eth0",
            "hardware-address": MAC.upper(),
            "ip-addresses": [{"ip-address": each} for each in ("fd00::2", "fe80::1", "10.0.2.2", "<script>")],
        },
    ],
}
ALL = {
    **ANSWERS,
    "guest-info": {
        "version": "7.2.22",
        "supported_commands": [{"name": name, "enabled": True} for name in [*ANSWERS, "guest-exec", "guest-exec-status"]],
    },
}


RARE = Times(agent_round=60.0, agent_pause=0.0)


class Scene:
    def __init__(self, times: Times) -> None:
        self.hypervisor = FakeHypervisor()
        self.hypervisor.answers = dict(ALL)
        self.seen: asyncio.Queue[Object | str | None] = asyncio.Queue()
        self.stopping = False
        self.agent = Agent(
            self.hypervisor,
            answered=self.seen.put_nowait,
            unresponsive=self.seen.put_nowait,
            gone=lambda: self.seen.put_nowait(None),
            stopping=lambda: self.stopping,
            times=times,
        )

    def becomes(self, *, connected: bool, state: State = State.RUNNING) -> None:
        self.hypervisor.become("guest", state, "booted", agent=connected)
        self.agent.take(self.hypervisor.domains["guest"])

    async def read(self) -> Any:
        return json.loads(await self.agent.read({MAC: "default"}))

    async def refused(self) -> RequestRefused:
        with pytest.raises(RequestRefused) as refused:
            await self.agent.read({})
        return refused.value

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.agent.run())
            yield
            task.cancel()


@pytest.fixture
def times() -> Times:
    return RARE


@pytest.fixture
def scene(times: Times) -> Scene:
    return Scene(times)


async def test_agent_is_queried_on_connect_and_gone_on_disconnect(scene: Scene) -> None:
    async with scene.running():
        scene.becomes(connected=True)
        told = await scene.seen.get()
        assert isinstance(told, dict)
        assert told["hostname"] == "web-1"
        scene.becomes(connected=True)
        scene.becomes(connected=False)
        assert await scene.seen.get() is None
    assert scene.seen.empty()


async def test_the_status_is_asked_for_what_it_shows_and_no_more(scene: Scene) -> None:
    async with scene.running():
        scene.becomes(connected=True)
        told = await scene.seen.get()
    assert isinstance(told, dict)
    status = agent_status.status_of(told)
    assert (status.connected, status.version, status.hostname, status.problem) == (True, "7.2.22", "web-1", "")
    assert (status.os_id, status.os_name, status.os_version) == ("debian", "Debian GNU/Linux 12 (bookworm)", "12")
    assert (status.kernel_release, status.timezone) == ("6.1.0", "CET")
    (card,) = agent_status.interfaces_of(told, {MAC: "default"})
    assert (card.name, card.mac, card.guest_device, card.ip_addresses) == ("default", MAC, "eth0", ("10.0.2.2", "fd00::2"))
    asked = {command for command, _ in scene.hypervisor.questions}
    assert not asked & {"guest-get-users", "guest-get-fsinfo", "guest-exec"}


async def test_an_agent_that_does_not_answer_is_asked_one_question(scene: Scene) -> None:
    scene.hypervisor.answers = dict.fromkeys(ANSWERS, AgentUnresponsive("guest agent command timed out"))
    async with scene.running():
        scene.becomes(connected=True)
        assert await scene.seen.get() == "guest agent command timed out"
    assert [command for command, _ in scene.hypervisor.questions] == ["guest-info"]


async def test_paused_or_stopping_guest_is_not_queried(scene: Scene) -> None:
    async with scene.running():
        scene.becomes(connected=True, state=State.PAUSED)
        await asyncio.sleep(0.01)
        scene.becomes(connected=False)
        assert await scene.seen.get() is None
        scene.stopping = True
        scene.becomes(connected=True)
        await asyncio.sleep(0.01)
    assert scene.hypervisor.questions == []


async def test_disconnected_libvirtd_is_not_reported_as_a_silent_agent(scene: Scene) -> None:
    scene.hypervisor.answers["guest-info"] = Unavailable("libvirtd is not connected")
    async with scene.running():
        scene.becomes(connected=True)
        while not scene.hypervisor.questions:
            await asyncio.sleep(0.001)
        assert scene.seen.empty()
        scene.hypervisor.answers |= ALL
        scene.becomes(connected=False)
        scene.becomes(connected=True)
        told = await scene.seen.get()
    assert isinstance(told, dict)


def executed(output: str, *, code: int = 0) -> dict[str, object]:
    def run(arguments: Mapping[str, Any]) -> object:
        return {"pid": 7} if arguments["path"] == "dpkg-query" else AgentRefused("no such file")

    data = base64.b64encode(output.encode()).decode()
    return {"guest-exec": run, "guest-exec-status": {"exited": True, "exitcode": code, "out-data": data}}


async def test_a_sign_of_life_is_asked_for_and_nothing_else(scene: Scene) -> None:
    scene.becomes(connected=True)
    scene.hypervisor.answers = {"guest-ping": {}}
    assert await scene.agent.ping() == "{}"
    assert scene.hypervisor.questions == [("guest-ping", {})]


@pytest.mark.parametrize(("error", "reason"), [(AgentUnresponsive("silent"), "Timeout"), (HypervisorError("broken"), "Failed")])
async def test_silent_agent_is_reported_with_the_reason(scene: Scene, error: HypervisorError, reason: str) -> None:
    scene.becomes(connected=True)
    scene.hypervisor.answers["guest-ping"] = error
    with pytest.raises(RequestRefused) as refused:
        await scene.agent.ping()
    assert refused.value.reason == reason
    scene.becomes(connected=False)
    with pytest.raises(RequestRefused, match="no guest agent is connected"):
        await scene.agent.ping()


async def test_a_read_is_told_everything(scene: Scene) -> None:
    scene.hypervisor.answers |= executed("adduser\t3.134\nbash\t5.2\nnonsense\n")
    scene.becomes(connected=True)

    info = await scene.read()
    assert info["agent"]["version"] == "7.2.22"
    assert info["os"]["prettyName"] == "Debian GNU/Linux 12 (bookworm)"
    assert info["timezone"] == {"name": "CET", "offsetSeconds": 3600}
    assert info["users"] == [{"userName": "root", "loginTime": "2023-11-14T22:13:20Z"}]
    assert info["filesystems"] == [
        {
            "name": "vda1",
            "mountPoint": "/",
            "type": "ext4",
            "totalBytes": 100,
            "usedBytes": 40,
            "disks": [{"device": "/dev/vda1", "serial": "s1", "bus": "virtio"}],
        }
    ]
    assert info["interfaces"] == [{"name": "default", "mac": MAC, "device": "eth0", "ipAddresses": ["10.0.2.2", "fd00::2"]}]
    assert info["applications"] == [{"name": "adduser", "version": "3.134"}, {"name": "bash", "version": "5.2"}]
    assert "unavailable" not in info
    assert guestinfo.bounded(info) == info


async def test_packages_are_listed_once_in_ten_minutes_at_any_result(scene: Scene) -> None:
    scene.becomes(connected=True)
    scene.hypervisor.answers |= executed("", code=2)
    reasons = [(await scene.read())["unavailable"] for _ in range(3)]

    assert reasons == [[{"field": "applications", "reason": "dpkg-query in the guest failed"}]] * 3
    assert [command for command, _ in scene.hypervisor.questions].count("guest-exec") == 1


async def test_packages_are_listed_again_after_a_reconnect(scene: Scene) -> None:
    scene.becomes(connected=True)
    scene.hypervisor.answers |= executed("bash\t5.2\n")
    before = await scene.read()
    scene.hypervisor.answers |= executed("bash\t5.3\n")
    scene.becomes(connected=True)
    assert (await scene.read())["applications"] == before["applications"]
    scene.becomes(connected=False)
    scene.becomes(connected=True)
    assert (await scene.read())["applications"] == [{"name": "bash", "version": "5.3"}]


async def test_a_guest_with_another_package_manager_is_asked_by_that(scene: Scene) -> None:
    def run(arguments: Mapping[str, Any]) -> object:
        return {"pid": 7} if arguments["path"] == "rpm" else AgentRefused("no such file")

    scene.hypervisor.answers |= executed("bash\t5.2-1\n") | {"guest-exec": run}
    scene.becomes(connected=True)
    assert (await scene.read())["applications"] == [{"name": "bash", "version": "5.2-1"}]


@pytest.mark.parametrize("times", [dataclasses.replace(RARE, packages_limit=0.05, packages_look=0.01)])
async def test_a_command_that_does_not_end_is_left(scene: Scene) -> None:
    scene.hypervisor.answers |= executed("") | {"guest-exec-status": {"exited": False}}
    scene.becomes(connected=True)
    assert "has not ended" in (await scene.read())["unavailable"][0]["reason"]


@pytest.mark.parametrize("begun", [{}, {"pid": "7"}, [], None, {"pid": True}])
async def test_a_process_without_a_number_is_not_looked_for(scene: Scene, begun: object) -> None:
    scene.hypervisor.answers |= executed("") | {"guest-exec": begun}
    scene.becomes(connected=True)
    assert "returned no process ID" in (await scene.read())["unavailable"][0]["reason"]


@pytest.mark.parametrize("said", ["YQ", "ä", "YWR\ud800"])
async def test_invalid_base64_output_is_reported_and_the_rest_kept(scene: Scene, said: str) -> None:
    scene.hypervisor.answers |= executed("") | {"guest-exec-status": {"exited": True, "exitcode": 0, "out-data": said}}
    scene.becomes(connected=True)

    info = await scene.read()
    assert info["unavailable"] == [
        {"field": "applications", "reason": "dpkg-query in the guest wrote output that the agent could not return"}
    ]
    assert info["hostname"] == "web-1"


async def test_disabled_agent_commands_are_skipped_with_a_reason(scene: Scene) -> None:
    scene.hypervisor.answers |= ANSWERS
    scene.becomes(connected=True)

    info = await scene.read()
    assert [each["field"] for each in info["unavailable"]] == ["os", "hostname", "timezone", "interfaces", "filesystems", "applications"]
    assert info["unavailable"][0]["reason"] == "the guest agent does not support guest-get-osinfo, or its configuration blocks it"
    assert [command for command, _ in scene.hypervisor.questions] == ["guest-info", "guest-get-users"]


async def test_refused_agent_command_is_reported_and_the_rest_kept(scene: Scene) -> None:
    scene.hypervisor.answers |= executed("a\t1\n") | {"guest-get-users": AgentRefused("no \x1b[2J users")}
    scene.becomes(connected=True)

    info = await scene.read()
    assert info["unavailable"] == [{"field": "users", "reason": "no [2J users"}]
    assert info["filesystems"]


async def test_an_agent_that_falls_silent_is_asked_no_more(scene: Scene) -> None:
    scene.hypervisor.answers |= executed("a\t1\n") | {"guest-get-osinfo": AgentUnresponsive("timed out")}
    scene.becomes(connected=True)

    info = await scene.read()
    assert {each["reason"] for each in info["unavailable"] if each["field"] != "applications"} == {"timed out"}
    assert info["agent"]["version"] == "7.2.22"
    asked = [command for command, _ in scene.hypervisor.questions]
    assert asked[:2] == ["guest-info", "guest-get-osinfo"]
    assert "guest-get-users" not in asked


async def test_unavailable_agent_is_reported_with_the_reason(scene: Scene) -> None:
    assert ((await scene.refused()).reason, str(await scene.refused())) == ("Conflict", "the guest is not running")
    scene.becomes(connected=False)
    assert "no guest agent is connected" in str(await scene.refused())
    scene.becomes(connected=True, state=State.PAUSED)
    assert "the guest is paused" in str(await scene.refused())
    scene.becomes(connected=True)
    scene.stopping = True
    assert "being shut down" in str(await scene.refused())
    scene.stopping = False
    assert scene.hypervisor.questions == []
    for error, reason in ((AgentUnresponsive("x"), "Timeout"), (Unavailable("x"), "Failed")):
        scene.hypervisor.answers["guest-info"] = error
        assert (await scene.refused()).reason == reason


@pytest.mark.parametrize("times", [dataclasses.replace(RARE, agent_turn=0.01)])
async def test_readers_take_turns_with_a_bounded_wait(scene: Scene) -> None:
    scene.becomes(connected=True)
    async with scene.agent._turn:
        refused = await scene.refused()
    assert (refused.reason, "earlier command" in str(refused)) == ("Timeout", True)
    assert (await scene.read())["hostname"] == "web-1"


async def test_a_guest_that_stops_while_its_reader_waits_is_not_asked(scene: Scene) -> None:
    scene.becomes(connected=True)
    async with asyncio.TaskGroup() as tasks, scene.agent._turn:
        reader = tasks.create_task(scene.refused())
        await asyncio.sleep(0.01)
        scene.becomes(connected=True, state=State.PAUSED)
    assert (reader.result().reason, "paused" in str(reader.result())) == ("Conflict", True)
    assert scene.hypervisor.questions == []
    assert not scene.agent._turn.locked()


async def test_a_guest_that_is_to_power_off_is_asked_no_more(scene: Scene) -> None:
    def stop(_: object) -> object:
        scene.stopping = True
        return ANSWERS["guest-get-osinfo"]

    scene.hypervisor.answers["guest-get-osinfo"] = stop
    scene.becomes(connected=True)
    info = await scene.read()
    assert info["os"]["id"] == "debian"
    assert {each["reason"] for each in info["unavailable"] if each["field"] != "applications"} == {"the guest is being shut down"}
    assert "guest-get-host-name" not in [command for command, _ in scene.hypervisor.questions]


@pytest.mark.parametrize("times", [dataclasses.replace(RARE, agent_limit=1.0)])
async def test_an_agent_that_is_slow_is_not_asked_everything(scene: Scene) -> None:
    def slow(_: object) -> object:
        time.sleep(1.0)  # the event loop's clock counts
        return ANSWERS["guest-get-osinfo"]

    scene.hypervisor.answers["guest-get-osinfo"] = slow
    scene.becomes(connected=True)
    found = await scene.agent._answers("guest", ("agent", "os", "hostname", "users"))
    assert found["os"] is not None
    assert [(each["field"], each["reason"]) for each in found["unavailable"]] == [
        (each, "not requested, because the guest agent was too slow") for each in ("hostname", "users")
    ]


@pytest.mark.parametrize("times", [dataclasses.replace(RARE, packages=0.0)])
async def test_packages_are_listed_again_after_ten_minutes(scene: Scene) -> None:
    scene.becomes(connected=True)
    for version in ("1", "2"):
        scene.hypervisor.answers |= executed(f"a\t{version}\n")
        assert (await scene.read())["applications"] == [{"name": "a", "version": version}]


@pytest.mark.parametrize("times", [dataclasses.replace(RARE, packages_limit=0.3, packages_look=0.1)])
async def test_a_command_is_looked_at_now_and_then(scene: Scene) -> None:
    scene.hypervisor.answers |= executed("") | {"guest-exec-status": {"exited": False}}
    scene.becomes(connected=True)
    await scene.read()
    assert [command for command, _ in scene.hypervisor.questions].count("guest-exec-status") <= 4


async def test_agent_command_waits_for_its_turn(scene: Scene) -> None:
    scene.becomes(connected=True)
    scene.hypervisor.answers["guest-sync"] = {}
    async with asyncio.TaskGroup() as tasks, scene.agent._turn:
        doing = tasks.create_task(scene.agent.do("guest-sync", {}))
        await asyncio.sleep(0.01)
        assert scene.hypervisor.questions == []
    assert doing.result() == {}


def test_commands_that_are_off_are_none() -> None:
    said = [{"name": "a", "enabled": True}, {"name": "b", "enabled": False}, {"name": "c"}, {"name": "d", "enabled": 1}, "e"]
    assert agent_answers.agent({"version": "1", "supported_commands": said})["commands"] == ["a"]


def test_addresses_that_are_of_the_guest_alone_are_left_out() -> None:
    said = ("127.0.0.1", "::1", "fe80::1", "169.254.0.1", "10.0.0.1", "fd00::1")
    (found,) = agent_answers.interfaces([{"name": "eth0", "ip-addresses": [{"ip-address": each} for each in said]}])
    assert found["ipAddresses"] == ["10.0.0.1", "fd00::1"]
    assert agent_answers.interfaces([{"name": "lo", "ip-addresses": [{"ip-address": "10.0.0.1"}]}]) == []


def test_few_of_what_an_agent_lists_is_looked_at() -> None:
    assert len(agent_answers.items([{}] * 1000)) == agent_answers.MAX_LOOKED_AT
    assert len(agent_answers.packages("a\t1\n" * 5000)) == agent_answers.MAX_LINES


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.sampled_from(["user", "disk", "name", "exited"]), inner, max_size=5)
    ),
    max_leaves=20,
)


@given(st.fixed_dictionaries(dict.fromkeys([*ANSWERS, "guest-exec", "guest-exec-status"], ANY)))
def test_any_guest_answer_is_bounded_and_printable(answers: dict[str, object]) -> None:
    scene = Scene(RARE)
    scene.hypervisor.answers = answers
    scene.becomes(connected=True)
    info = asyncio.run(scene.read())

    assert guestinfo.bounded(info) == info
    assert codec.fits(json.dumps(info, ensure_ascii=False))


async def test_a_guest_that_says_as_much_as_it_can_is_cut_and_says_so(scene: Scene) -> None:
    long = "\U0001f600" * 1000
    scene.hypervisor.answers |= {
        "guest-get-users": [{"user": long, "domain": long}] * 5000,
        "guest-get-fsinfo": [{"name": long, "mountpoint": long, "type": long, "disk": [{"dev": long, "serial": long}] * 99}] * 5000,
        "guest-network-get-interfaces": [{"name": long, "ip-addresses": [{"ip-address": f"10.0.0.{n}"} for n in range(99)]}] * 5000,
        **executed(f"{'x' * 500}\t{'y' * 500}\n" * 3000),
    }
    scene.becomes(connected=True)
    text = await scene.agent.read({})

    info = json.loads(text)
    assert codec.fits(text)
    assert guestinfo.bounded(info) == info
    assert set(info["truncated"]) >= {"users", "filesystems", "interfaces", "applications"}
    assert all(info[each] for each in info["truncated"])


def test_every_field_has_a_question_and_a_place() -> None:
    assert set(agent_answers.QUESTIONS) | {"time", "applications", "unavailable", "truncated"} == set(guestinfo.FIELDS)


def test_times_that_are_none_are_left_out() -> None:
    logins: list[Any] = [1e300, -1e300, "yesterday", None, [], True, float("inf")]
    for login in logins:
        assert guestinfo.bounded({"users": agent_answers.users([{"user": "u", "login-time": login}])})["users"][0]["userName"] == "u"
