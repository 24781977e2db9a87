from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiserver.apis.meta.objects import condition
from apiserver.apis.virt.spec import probes
from apiserver.apis.virt.spec.probes import Probe
from handler.network.namespaces import CommandFailed
from handler.probes.asking import Question, request
from handler.probes.tally import Outcome
from launcher.protocol import messages
from tests.component.handler.world import EVENTS, VMS, World, eventually, phase_is


class Server:
    def __init__(self) -> None:
        self.answer: bytes | None = b"HTTP/1.1 200 OK\r\n\r\n"
        self.asked: list[bytes] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            if self.answer is None:
                await reader.read()
            else:
                writer.write(self.answer)
                await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.open()
    yield made
    made.close()


class NoLink:
    connection = None


async def asked(probe: Probe, address: str = "127.0.0.1") -> Outcome:
    return await Question(probe, address, lambda family: socket.socket(family, socket.SOCK_STREAM)).ask(NoLink())


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 204\r\n\r\n", b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", b"HTTP/1.1 399 Hm\r\n\r\n"],
)
async def test_an_answer_from_200_to_399_is_a_success(server: Server, answer: bytes) -> None:
    server.answer = answer
    probe = Probe("httpGet", server.port, "/live?x=1", (("Host", "guest"), ("X-A", "b")))
    assert await asked(probe) == Outcome(succeeded=True)
    assert server.asked == [request(probe, "127.0.0.1")]
    assert server.asked[0].split(b"\r\n") == [
        *(b"GET /live?x=1 HTTP/1.1", b"User-Agent: kube-probe/kubevirt", b"Accept: */*", b"Host: guest", b"X-A: b", b"Connection: close"),
        *(b"", b""),
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP status 503"),
        (b"HTTP/1.1 199 Hm\r\n\r\n", "HTTP status 199"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP status 400"),
        (b"SSH-2.0-OpenSSH\r\n", "the response is not HTTP"),
        (b"", "the response is not HTTP"),
        (b"HTTP/1.1 200", "the response is not HTTP"),
        (b"HTTP/1.1 \xb2\xb0\xb0 OK\r\n", "the response is not HTTP"),
        (b"HTTP/1.1 200 " + b"a" * 100_000, "the response is not HTTP"),
        (b"HTTP/1.1 200 " + b"a" * 2_000 + b"\r\n\r\n", "the response is not HTTP"),
    ],
)
async def test_every_other_answer_is_a_failure_and_says_why(server: Server, answer: bytes, why: str) -> None:
    server.answer = answer
    assert await asked(Probe("httpGet", server.port)) == Outcome(succeeded=False, message=f"GET / at port {server.port}: {why}")


async def test_tcp_probe_succeeds_on_connection_and_fails_without(server: Server) -> None:
    assert await asked(Probe("tcpSocket", server.port)) == Outcome(succeeded=True)
    server.close()
    told = f"connection to port {server.port}: "
    found = await asked(Probe("tcpSocket", server.port))
    assert (found.succeeded, found.message.startswith(told)) == (False, True)
    assert "refused" in found.message.lower()


async def test_unanswered_probe_fails_at_its_timeout(server: Server) -> None:
    server.answer = None
    found = await asked(Probe("httpGet", server.port, timeout_seconds=1))
    assert found == Outcome(succeeded=False, message=f"GET / at port {server.port}: no answer within 1 s")


async def test_no_socket_stays_open_whatever_comes_of_a_question(server: Server) -> None:
    made: list[socket.socket] = []

    def make(family: socket.AddressFamily) -> socket.socket:
        made.append(socket.socket(family, socket.SOCK_STREAM))
        return made[-1]

    async def ask(handler: str) -> None:
        await Question(Probe(handler, server.port, timeout_seconds=1), "127.0.0.1", make).ask(NoLink())

    for answer in (b"HTTP/1.1 200 OK\r\n\r\n", b"SSH-2.0\r\n", None):
        server.answer = answer
        await ask("httpGet")
    await ask("tcpSocket")
    server.close()
    await ask("tcpSocket")
    assert [each.fileno() for each in made] == [-1] * 5


async def test_impossible_probe_is_no_failure() -> None:
    def refuse(_: socket.AddressFamily) -> socket.socket:
        raise OSError(24, "Too many open files")

    assert await Question(Probe("tcpSocket", 1), "127.0.0.1", refuse).ask(NoLink()) == Outcome(None)
    assert await asked(Probe("tcpSocket", 1), "") == Outcome(None)
    assert await asked(Probe("guestAgentPing")) == Outcome(None)


def test_an_address_of_ipv6_is_in_brackets() -> None:
    assert b"Host: [fd00::1]:80\r\n" in request(Probe("httpGet", 80), "fd00::1")


def ready(world: World) -> tuple[str, str]:
    found = condition(world.status().get("conditions"), "Ready") or {}
    return found.get("status", ""), found.get("reason", "")


@asynccontextmanager
async def probed(world: World, **spec: Any) -> AsyncIterator[Any]:
    await world.vm()
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(spec))
    launcher = await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.address = "127.0.0.1"
        await eventually(lambda: phase_is(world, "Running"))
        yield launcher, handler


def of_http(server: Server, **more: int) -> dict[str, Any]:
    return {"httpGet": {"port": server.port}, "periodSeconds": 1, "failureThreshold": 1, **more}


async def test_a_machine_is_ready_while_its_guest_says_so(world: World, server: Server) -> None:
    server.answer = b"HTTP/1.1 503 Not yet\r\n\r\n"
    async with probed(world, readinessProbe=of_http(server)):
        await eventually(lambda: "HTTP status 503" in str(world.status()["conditions"]))
        assert ready(world) == ("False", "ReadinessProbeFailed")
        server.answer = b"HTTP/1.1 200 OK\r\n\r\n"
        await eventually(lambda: ready(world) == ("True", "GuestRunning"))
        server.answer = b"HTTP/1.1 500 Oh\r\n\r\n"
        await eventually(lambda: ready(world) == ("False", "ReadinessProbeFailed"))
        writes, count = world.writes(), len(server.asked)
        await eventually(lambda: len(server.asked) >= count + 2)
        assert world.writes() == writes
    assert phase_is(world, "Running")
    assert world.events() == ["Started", "ReadinessProbeFailed"]
    assert world.refused == []


async def test_a_restarted_handler_goes_on_from_what_the_machine_says(world: World, server: Server) -> None:
    async with probed(world, readinessProbe=of_http(server)):
        await eventually(lambda: ready(world)[0] == "True")
    server.answer = None
    writes = world.writes()
    async with world.handler() as handler:
        handler.node.address = "127.0.0.1"
        count = len(server.asked)
        await eventually(lambda: len(server.asked) > count)
        assert (ready(world)[0], world.writes()) == ("True", writes)


async def test_a_guest_that_is_not_alive_is_ended_and_has_failed(world: World, server: Server) -> None:
    async with probed(world, livenessProbe=of_http(server)) as (launcher, _):
        await eventually(lambda: len(server.asked) >= 2)
        assert ready(world) == ("True", "GuestRunning")
        server.answer = b"HTTP/1.1 500 Oh\r\n\r\n"
        await eventually(lambda: launcher.status.stopping)
        assert phase_is(world, "Stopping")
        launcher.end("destroyed")
        await eventually(lambda: phase_is(world, "Failed"))
    (attempt,) = world.status()["attempts"]
    assert attempt["result"] == "Failed"
    assert attempt["message"] == f"the liveness probe failed: GET / at port {server.port}: HTTP status 500"
    assert [each for each in launcher.received if isinstance(each, messages.Shutdown)] == [messages.Shutdown(30.0)]
    assert set(world.events()) == {"Started", "LivenessProbeFailed", "ShuttingDown"}
    (told,) = [each["message"] for each in world.api.all(EVENTS) if each["reason"] == "ShuttingDown"]
    assert told == f"{attempt['message']}; the guest has 30 s to shut down"
    assert world.refused == []


async def test_handler_ending_after_a_verdict_hands_the_end_on(world: World, server: Server) -> None:
    async with probed(world, livenessProbe=of_http(server)) as (launcher, _):
        launcher.mute = True
        server.answer = b"HTTP/1.1 500 Oh\r\n\r\n"
        await eventually(lambda: phase_is(world, "Stopping"))
    launcher.mute = False
    launcher.hang_up()
    async with world.handler():
        await eventually(lambda: launcher.status.stopping)
        launcher.end("shutdown-requested")
        await eventually(lambda: phase_is(world, "Failed"))
    assert ready(world) == ("False", "LivenessProbeFailed")


async def test_a_paused_guest_and_one_that_moves_are_not_ended(world: World, server: Server) -> None:
    def moves(launcher: Any) -> None:
        launcher.migration("mig-1", "outgoing", "running")

    def stands(launcher: Any) -> None:
        launcher.change(domain=replace(launcher.status.domain, state="paused", reason="I/O error"))

    quiets: tuple[Callable[[Any], None], ...] = (moves, stands)
    async with probed(world, livenessProbe=of_http(server)) as (launcher, handler):
        for quiet in quiets:
            await eventually(lambda: len(server.asked) >= 1)
            before = launcher.status
            quiet(launcher)
            await eventually(lambda before=before: launcher.status is not before)  # type: ignore[misc]  # a default binds it
            await eventually(lambda: handler.unasked >= 1)
            server.answer, server.asked, handler.unasked = b"HTTP/1.1 500 Oh\r\n\r\n", [], 0
            await eventually(lambda: handler.unasked >= 2)
            assert server.asked == []
            server.answer = b"HTTP/1.1 200 OK\r\n\r\n"
            launcher.change(domain=before.domain, migrations=())
            handler.unasked = 0
        await eventually(lambda: len(server.asked) >= 1)
        assert not launcher.status.stopping


async def test_an_agent_is_asked_one_question_at_a_time(world: World) -> None:
    probe = {"guestAgentPing": {}, "periodSeconds": 1, "failureThreshold": 1}
    await world.vm()
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=probe))
    launcher = await world.launcher("pod-1")
    launcher.texts[probes.PING] = "{}"

    def pings() -> int:
        return sum(each == messages.Read(probes.PING) for each in launcher.received)

    async with world.handler() as handler:
        await eventually(lambda: ready(world)[0] == "True")
        launcher.mute_reads = True
        await eventually(lambda: ready(world) == ("False", "ReadinessProbeFailed"))
        told = condition(world.status()["conditions"], "Ready") or {}
        assert told["message"] == "the readiness probe fails: guest agent: no answer within 1 s"
        count, answered = pings(), handler.asked
        await eventually(lambda: handler.asked >= answered + 4)
        assert pings() == count


async def test_a_command_is_run_in_the_guest(world: World) -> None:
    probe = {"exec": {"command": ["/bin/live", "-a"]}, "periodSeconds": 1, "failureThreshold": 1}
    problems: list[tuple[messages.RefusalReason, str]] = []

    def answer(request: messages.Action) -> tuple[messages.RefusalReason, str] | None:
        return problems[-1] if problems and isinstance(request, messages.Execute) else None

    def runs() -> int:
        return sum(each == messages.Execute(("/bin/live", "-a"), 1) for each in launcher.received)

    async with probed(world, readinessProbe=probe) as (launcher, handler):
        await eventually(lambda: ready(world)[0] == "True")
        launcher.instead = answer
        problems.append(("Failed", "/bin/live failed with exit code 1: \x1b[2J" + "no" * 400))
        await eventually(lambda: ready(world) == ("False", "ReadinessProbeFailed"))
        told = str((condition(world.status()["conditions"], "Ready") or {})["message"])
        assert told.startswith("the readiness probe fails: command in the guest: /bin/live failed with exit code 1: [2Jno")
        assert len(told) < 400
        problems.clear()
        launcher.change(frozen=True)
        await asyncio.sleep(0.05)
        count, answered = runs(), handler.asked
        await eventually(lambda: handler.asked >= answered + 4)
        assert (runs(), ready(world)) == (count, ("False", "ReadinessProbeFailed"))
        launcher.change(frozen=False)
        await eventually(lambda: ready(world)[0] == "True")


async def test_an_older_launcher_runs_no_commands(world: World) -> None:
    await world.vm()
    probe = {"exec": {"command": ["a"]}, "periodSeconds": 1, "failureThreshold": 1}
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(livenessProbe=probe))
    launcher = await world.launcher("pod-1")
    launcher.later_actions = ("Import",)
    async with world.handler() as handler:
        await eventually(lambda: handler.asked >= 8)
    assert phase_is(world, "Running")
    assert not any(isinstance(each, messages.Execute) for each in launcher.received)


async def test_disconnected_launcher_is_no_probe_failure(world: World) -> None:
    probe = {"guestAgentPing": {}, "periodSeconds": 1, "timeoutSeconds": 600, "failureThreshold": 1}
    await world.vm()
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=probe))
    launcher = await world.launcher("pod-1")
    launcher.texts[probes.PING] = "{}"

    def pings() -> int:
        return sum(each == messages.Read(probes.PING) for each in launcher.received)

    async with world.handler():
        await eventually(lambda: ready(world)[0] == "True")
        launcher.mute_reads = True
        before = pings()
        await eventually(lambda: pings() > before)
        before = pings()
        launcher.hang_up()
        await eventually(lambda: pings() > before)
        assert ready(world)[0] == "True"


async def test_agent_error_is_a_probe_failure_with_its_reason(world: World) -> None:
    probe = {"guestAgentPing": {}, "periodSeconds": 1, "failureThreshold": 1}
    await world.vm()
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=probe))
    launcher = await world.launcher("pod-1")
    launcher.texts[probes.PING] = messages.Refusal(0, "Conflict", "no guest agent is connected", launcher.status)
    async with world.handler():
        await eventually(lambda: "guest agent: no guest agent is connected" in str(world.status().get("conditions")))
        launcher.texts[probes.PING] = "{}"
        await eventually(lambda: ready(world)[0] == "True")


async def test_initial_delay_counts_the_guests_time_on_other_nodes(world: World, server: Server) -> None:
    """On this VM, runningTime is hours ago."""
    await world.vm()

    def edit(vm: Any) -> None:
        vm["spec"]["readinessProbe"] = of_http(server, initialDelaySeconds=3600)
        vm["status"]["attempts"][0]["runningTime"] = "2026-11-21T04:00:00Z"

    await world.api.edit(VMS, "default", "testvm", edit)
    await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.address = "127.0.0.1"
        await eventually(lambda: ready(world)[0] == "True")


async def test_the_initial_delay_is_waited_for(world: World, server: Server) -> None:
    async with probed(world, readinessProbe=of_http(server, initialDelaySeconds=3600), livenessProbe=of_http(server)):
        await eventually(lambda: len(server.asked) >= 3)
        assert ready(world) == ("False", "ReadinessProbeFailed")


async def test_edited_probe_restarts_and_a_removed_one_stops(world: World, server: Server) -> None:
    async with probed(world, readinessProbe={"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1}):
        await eventually(lambda: "connection to port 1" in str(world.status()["conditions"]))
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=of_http(server)))
        await eventually(lambda: ready(world)[0] == "True")
        other = Server()
        await other.open()

        def exchange(vm: Any) -> None:
            vm["spec"]["livenessProbe"] = of_http(other)
            del vm["spec"]["readinessProbe"]

        await world.api.edit(VMS, "default", "testvm", exchange)
        await eventually(lambda: len(other.asked) >= 1)
        count = len(server.asked)
        await eventually(lambda: len(other.asked) >= 4)
        assert len(server.asked) == count
        other.close()


async def test_guest_is_probed_at_its_networks_address_only(world: World, server: Server) -> None:
    await world.vm(podIP="127.0.0.1")
    probe = of_http(server)
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=probe))
    await world.launcher("pod-1")
    async with world.handler():
        await eventually(lambda: phase_is(world, "Running"))
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["status"].update(podIP="127.0.0.1"))
    async with world.handler() as handler:
        handler.node.no_network = CommandFailed("no bridge")
        agent = {"guestAgentPing": {}, "periodSeconds": 1}
        await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(livenessProbe=agent))
        await eventually(lambda: handler.asked >= 4)
        assert (handler.node.tried > 0, server.asked) == (True, [])
    async with world.handler() as handler:
        handler.node.address = "127.0.0.1"
        await eventually(lambda: ready(world)[0] == "True")


async def test_guest_without_an_address_is_told_from_a_slow_one(world: World, server: Server) -> None:
    await world.vm(podIP="127.0.0.1")
    probe = of_http(server)
    await world.api.edit(VMS, "default", "testvm", lambda vm: vm["spec"].update(readinessProbe=probe))
    await world.launcher("pod-1")
    async with world.handler() as handler:
        handler.node.address, handler.node.is_own = "127.0.0.1", False
        await eventually(lambda: phase_is(world, "Running"))
        told = condition(world.status()["conditions"], "Ready") or {}
        assert told["message"] == "the readiness probe cannot be sent: the guest has no address in the pod's network"
        assert ready(world) == ("False", "ReadinessProbeFailed")
    async with world.handler() as handler:
        handler.node.address = "127.0.0.1"
        await eventually(lambda: ready(world)[0] == "True")


STRANDED = """
import asyncio, os, socket, sys, uvloop
from apiserver.apis.virt.spec.probes import Probe
from controller.runtime.clock import SystemClock
from handler.pods.links import Link
from handler.probes import node_sockets
from handler.probes.asking import Question
from handler.probes.prober import Prober

def make(family):
    node_sockets._come_back(os.open(os.devnull, os.O_RDONLY))

async def main():
    prober = Prober(
        lambda probe, address: Question(probe, address, make), SystemClock(), may_be_asked=lambda status: True, changed=lambda link: None
    )
    vm = {"spec": {"readinessProbe": {"tcpSocket": {"port": 80}}}}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(prober.run())
        tasks.create_task(asyncio.sleep(600))
        prober.verdict(vm, Link("8c9c3b0e-0000-4000-8000-000000000001", 0.0), "10.0.0.1")

uvloop.run(main())
"""


def test_a_process_that_does_not_come_back_to_its_network_ends() -> None:
    """Otherwise it would work in the node's network."""
    command, environment = [sys.executable, "-c", STRANDED], {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, env=environment)
    assert done.returncode == 1
    assert "virt-handler could not return to its pod's network namespace, exiting: Invalid argument\n" in done.stderr
