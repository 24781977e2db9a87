from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import select
import signal
import ssl
import stat
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from websockets.asyncio.client import ClientConnection

from apiserver.apis.meta import errors
from apiserver.kubectl import __main__ as entry
from apiserver.kubectl import access, acting, console, displays, domainxml, flags, guestinfo, migrations, terminal, usbredir
from apiserver.kubectl.access import Access, Selection
from apiserver.kubectl.messages import Failure
from tests.fakes.streams import RFB, SCREENFUL, FakeStreams

ROOT = Path(__file__).parents[2]


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


def write_kubeconfig(path: Path, url: str, user: Mapping[str, object], **context: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me", **context}}],
        "clusters": [{"name": "one", "cluster": {"server": url}}, {"name": "two", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": user}, {"name": "other", "user": {"token": "others"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


class Attached:
    def __init__(
        self, way: Access, settings: console.Settings, *, terminal: bool, session: type[console.Session] = console.Session
    ) -> None:
        self.far, self.near = pty.openpty() if terminal else os.pipe()
        if not terminal:
            self.far, self.near = self.near, self.far
        self.out, self._out_near = os.pipe()
        os.set_blocking(self.out, False)
        self.output = b""

        async def load() -> Access:
            return way

        self.session = session(settings, load, stdin=self.near, stdout=self._out_near)

    def type(self, text: bytes) -> None:
        os.write(self.far, text)

    def read(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            self.output += os.read(self.out, 65536)
        return self.output

    def close(self) -> None:
        for descriptor in {self.far, self.near, self.out, self._out_near}:
            with contextlib.suppress(OSError):
                os.close(descriptor)


@contextlib.asynccontextmanager
async def attached(
    way: Access,
    *,
    terminal: bool = True,
    wait: float = 0.0,
    reconnect: float = 5.0,
    replay: float = 1.0,
    session: type[console.Session] = console.Session,
) -> AsyncIterator[tuple[Attached, asyncio.Task[None]]]:
    one = Attached(way, console.Settings("testvm", wait, reconnect, replay_seconds=replay), terminal=terminal, session=session)
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(one.session.run())
            yield one, task
            task.cancel()
    finally:
        one.close()


async def test_keys_go_to_the_guest_unread_and_ctrl_bracket_leaves(server: FakeStreams, way: Access) -> None:
    async with attached(way) as (one, task):
        before = termios.tcgetattr(one.near)
        await until(lambda: one.read() == SCREENFUL)
        assert not termios.tcgetattr(one.near)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

        one.type(b"ls\r\x03")
        await until(lambda: one.read() == SCREENFUL + b"LS\r\x03")
        one.type(b"x\x1dy")
        async with asyncio.timeout(30):
            await task

        assert termios.tcgetattr(one.near) == before
        assert server.subprotocols == ["plain.kubevirt.io"]
        assert ("Authorization", "Bearer secret") in server.requests[0][2]
        await until(lambda: not server.open)


async def test_two_people_share_a_console(server: FakeStreams, way: Access) -> None:
    async with attached(way) as (one, _), attached(way) as (two, _):
        await until(lambda: len(server.open) == 2)
        await until(lambda: one.read() == two.read() == SCREENFUL)


async def test_a_connection_that_breaks_is_dialled_again(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async with attached(way) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.ServiceUnavailable("virt-api is starting"), errors.BadRequest("it is not running")]
        server.cut()
        await until(lambda: len(server.requests) == 4 and len(server.open) == 1)
        await until(lambda: not one.session._is_cut_off)
        one.type(b"a")
        await until(lambda: one.read().endswith(b"A"))
        assert one.output == SCREENFUL + b"A"

    said = capsys.readouterr().err
    assert "was disconnected: the connection broke" in said
    assert "Reconnected.\r\n" in said


async def test_persons_input_during_an_outage_is_discarded_with_notice(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""

    def has_said(text: str) -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return text in said

    async with attached(way) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.ServiceUnavailable("virt-handler is not ready")] * 1000
        server.cut()
        await until(lambda: has_said("was disconnected"))
        one.type(b"reboot\r")
        asked = len(server.requests)
        await until(lambda: len(server.requests) > asked + 1)
        server.refusals = []
        await until(lambda: has_said(f"Reconnected. {console.DISCARDED}"))
        one.type(b"a")
        await until(lambda: one.read().endswith(b"A"))
        assert one.output == SCREENFUL + b"A"
        server.cut()
        await until(lambda: has_said("Reconnected.\r\n"))


class Stuck(console.Session):
    """A session; its first connection sends no keys."""

    stuck = True

    async def _type(self, connection: ClientConnection) -> None:
        if self.stuck:
            self.stuck = False
            self._unsent = await self._keys.get()
            await asyncio.Event().wait()
        await super()._type(connection)


async def test_unsent_keys_of_a_broken_connection_are_discarded(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    async with attached(way, session=Stuck) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
        one.type(b"reboot")
        await until(lambda: one.session._unsent == b"reboot")
        one.type(b"\r")
        await until(lambda: not one.session._keys.empty())
        server.cut()
        await until(lambda: console.DISCARDED in capsys.readouterr().err)
        one.type(b"a")
        await until(lambda: one.read().endswith(b"A"))
        assert one.output == SCREENFUL + b"A"


async def test_scripts_input_during_an_outage_is_delivered_later(server: FakeStreams, way: Access) -> None:
    async with attached(way, terminal=False) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.ServiceUnavailable("virt-handler is not ready")] * 2
        server.cut()
        await until(lambda: len(server.requests) > 1)
        one.type(b"a")
        await until(lambda: one.read().endswith(b"A"))


async def test_a_warning_of_the_server_is_printed_as_kubectl_prints_it(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    server.warnings = ['299 - "virtual machine \\"testvm\\" is paused: asked for"']
    async with attached(way) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
    said = capsys.readouterr().err
    assert said.index("Connected to the console") < said.index('\r\nWarning: virtual machine "testvm" is paused: asked for\r\n')


async def test_lost_server_is_redialled_and_the_guests_end_is_final(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    async with attached(way) as (one, task):
        await until(lambda: one.read() == SCREENFUL)
        await server.close(1001, "virt-api is stopping")
        server.scrollback += b"meanwhile"
        await until(lambda: one.read() == SCREENFUL + b"meanwhile")
        await server.close(1000, "the guest powered off")
        async with asyncio.timeout(30):
            await task

    said = capsys.readouterr().err
    assert "virt-api is stopping" in said
    assert "closed: the guest powered off" in said


async def test_no_terminal_obeys_why_a_console_is_not_there_or_ended(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals = [errors.BadRequest("it is \x1b]0;owned\x07not running\n\x9b2J")]
    async with attached(way, wait=5) as (one, task):
        await until(lambda: one.read() == SCREENFUL)
        await server.close(1011, "a \x1b[2Jnode")
        await until(lambda: len(server.subprotocols) == 2 and server.open)
        await server.close(1000, "the \x1b[2Jend")
        async with asyncio.timeout(30):
            await task

    said = capsys.readouterr().err
    for text in ("Ctrl-] leaves: it is ]0;ownednot running | 2J", "was disconnected: a [2Jnode.", "closed: the [2Jend."):
        assert text in said
    assert all(line.isprintable() for line in said.splitlines())


async def test_no_terminal_obeys_why_a_viewer_was_cut_off(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async def load() -> Access:
        return way

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(displays.Vnc("testvm", load).run(port=0, proxy_only=True))
        said = ""
        while not said:
            await asyncio.sleep(0.01)
            said = capsys.readouterr().out
        reader, writer = await asyncio.open_connection("127.0.0.1", json.loads(said)["port"])
        assert await reader.readexactly(len(RFB)) == RFB
        await server.close(1011, "a \x1b[2Jnode")
        assert await reader.read() == b""
        writer.close()
        server.refusals = [errors.ServiceUnavailable("a \x1b]0;owned\x07node")]
        reader, writer = await asyncio.open_connection("127.0.0.1", json.loads(said)["port"])
        assert await reader.read() == b""
        writer.close()
        task.cancel()

    assert capsys.readouterr().err.splitlines() == [
        "the screen was disconnected: a [2Jnode",
        "Error from server (ServiceUnavailable): cannot open the vnc of virtual machine default/testvm: a ]0;ownednode",
    ]


async def test_console_with_a_withdrawn_right_is_not_redialled(server: FakeStreams, way: Access) -> None:
    one = Attached(way, console.Settings("testvm"), terminal=True)
    before = termios.tcgetattr(one.near)

    async def withdraw() -> None:
        await until(lambda: one.read() == SCREENFUL)
        await server.close(1008, "your permission to create virtualmachines/console was revoked")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(withdraw())
        with pytest.raises(Failure) as failure:
            await one.session.run()

    assert str(failure.value) == "error: the console of testvm was closed: your permission to create virtualmachines/console was revoked"
    assert len(server.requests) == 1
    assert termios.tcgetattr(one.near) == before
    one.close()


async def test_console_with_an_expired_credential_redials_with_a_new(server: FakeStreams, url: str) -> None:
    tokens = iter(("old", "new"))

    async def load() -> Access:
        return Access(url, "default", headers=(("Authorization", f"Bearer {next(tokens)}"),))

    one = Attached(Access(url, "default"), console.Settings("testvm", 0.0, 5.0), terminal=True)
    one.session._load = load
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        task = group.create_task(one.session.run())
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.Unauthorized("Unauthorized")]
        await server.close(3000, "your credential is no longer valid")
        server.scrollback += b"meanwhile"
        await until(lambda: one.read() == SCREENFUL + b"meanwhile")
        task.cancel()
    one.close()
    assert [dict(headers)["Authorization"] for _, _, headers in server.requests] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_the_plugin_says_no_origin_as_no_program_does(server: FakeStreams, way: Access) -> None:
    async with attached(way) as (one, _):
        await until(lambda: one.read() == SCREENFUL)
    assert "origin" not in {name.lower() for name, _ in server.requests[0][2]}


async def test_ctrl_bracket_leaves_while_it_is_being_dialled_again(server: FakeStreams, way: Access) -> None:
    async with attached(way, reconnect=60) as (one, task):
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.ServiceUnavailable("down")] * 1000
        server.cut()
        await until(lambda: len(server.requests) > 2)
        one.type(b"\x1d")
        async with asyncio.timeout(30):
            await task


async def test_a_console_that_does_not_come_back_is_given_up_in_time(server: FakeStreams, way: Access) -> None:
    one = Attached(way, console.Settings("testvm", 0.0, 0.3), terminal=True)
    before = termios.tcgetattr(one.near)

    async def break_it() -> None:
        await until(lambda: one.read() == SCREENFUL)
        server.refusals = [errors.ServiceUnavailable("down")] * 1000
        server.cut()

    async def attach() -> None:
        with pytest.raises(Failure, match="down"):
            await one.session.run()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(break_it())
        group.create_task(attach())

    assert termios.tcgetattr(one.near) == before
    one.close()


async def test_a_script_types_what_it_pipes_and_leaves_at_ctrl_bracket(server: FakeStreams, way: Access) -> None:
    server.refusals = [errors.BadRequest("it is not running")]
    async with attached(way, terminal=False, wait=5) as (one, task):
        one.type(b"uname\n\x1d")
        async with asyncio.timeout(30):
            await task

    await until(lambda: server.typed == b"uname\n")


async def test_script_with_ended_input_reads_the_answer_and_leaves(
    server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals = [errors.BadRequest("it is not running"), errors.BadRequest("it is not running")]
    async with attached(way, terminal=False, wait=5) as (one, task):
        one.type(b"a")
        os.close(one.far)
        await until(lambda: one.read() == SCREENFUL + b"A")
        assert not task.done()
        async with asyncio.timeout(30):
            await task
    assert capsys.readouterr().err.count("Waiting for 5 s; Ctrl-] leaves: it is not running") == 1


@pytest.mark.parametrize("what", ["nothing", "closed"])
async def test_script_without_input_shows_the_output_and_leaves(server: FakeStreams, url: str, tmp_path: Path, what: str) -> None:
    done = await program(tmp_path, url, "console", "testvm", "--linger", "300ms", shell=f'exec "$@" {REDIRECTIONS[what]}')
    assert (done.code, done.out) == (0, SCREENFUL.decode())


REDIRECTIONS = {"nothing": "</dev/null", "closed": "<&-"}

OPEN = "cannot open the console of virtual machine default/testvm: "


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (errors.NotFound("testvm not found"), f"Error from server (NotFound): {OPEN}testvm not found"),
        (errors.Forbidden("no"), f"Error from server (Forbidden): {OPEN}no"),
        (errors.BadRequest("testvm is not running"), f"Error from server (BadRequest): {OPEN}testvm is not running"),
        (errors.Unauthorized("Unauthorized"), "error: You must be logged in to the server (Unauthorized)"),
        (502, f"Error from server: {OPEN}the server answered 502: upstream is sad"),
    ],
)
async def test_a_refusal_says_what_was_being_done_to_what(
    server: FakeStreams, way: Access, refusal: errors.StatusError | int, text: str
) -> None:
    server.refusals = [refusal]
    one = Attached(way, console.Settings("testvm"), terminal=True)

    with pytest.raises(Failure) as failure:
        await one.session.run()

    assert str(failure.value) == text
    one.close()


async def test_a_server_that_is_not_there_is_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    del url
    one = Attached(Access("http://127.0.0.1:1", "default"), console.Settings("testvm"), terminal=True)

    with pytest.raises(Failure, match=r"Unable to connect to the server http://127.0.0.1:1"):
        await one.session.run()
    assert await acted(Access("http://127.0.0.1:1", "default"), "start", "a") == 1
    text = "Unable to connect to the server http://127.0.0.1:1: cannot start virtual machine default/a"
    assert text in capsys.readouterr().err
    one.close()


async def acted(way: Access, verb: str, *machines: str) -> int:
    async def load() -> Access:
        return way

    if verb == "migrate":
        return await acting.each(machines, lambda name: migrations.migrate(name, load, migrations.Waiting()))
    return await acting.act(load, machines, verb, {}, migrations.Waiting())


async def test_verbs_are_one_request_each(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    server.answers["migrate"] = {"kind": "Migration", "metadata": {"name": "testvm-x7k2p"}}

    assert await acted(way, "stop", "testvm") == 0
    assert await acted(way, "migrate", "testvm") == 0
    server.refusals = [errors.Conflict("virtual machine testvm is already paused")]
    assert await acted(way, "pause", "testvm") == 1
    said = capsys.readouterr()
    assert said.out.splitlines() == ["virtualmachine.kubevirt.io/testvm: stop requested", "migration.kubevirt.io/testvm-x7k2p created"]
    assert re.search(r"\(Conflict\): cannot pause virtual machine default/testvm: .* already paused", said.err)

    assert [(method, path.rsplit("/", 2)[-1]) for method, path, _ in server.requests] == [
        ("PUT", "stop"),
        ("PUT", "migrate"),
        ("PUT", "pause"),
    ]


async def test_guest_info_is_shown_as_a_table_or_raw(server: FakeStreams, way: Access) -> None:
    told = {"kind": "VirtualMachineGuestInfo", "hostname": "web-1\x1b[2J", "users": [{"userName": "alice"}], "nonsense": 1}
    server.answers["guestinfo"] = told

    assert "Host name:          web-1[2J" in await guestinfo.show(way, "testvm", "table")
    assert json.loads(await guestinfo.show(way, "testvm", "json")) == told
    server.refusals = [errors.Conflict("no guest agent is connected")]
    with pytest.raises(
        Failure,
        match=(
            r"\(Conflict\): cannot read the guest's information of virtual machine "
            r"default/testvm: no guest agent"
        ),
    ):
        await guestinfo.show(way, "testvm", "wide")

    assert {(method, path.rsplit("/", 2)[-1]) for method, path, _ in server.requests} == {("GET", "guestinfo")}


async def test_the_xml_that_libvirt_was_given_is_shown(server: FakeStreams, way: Access) -> None:
    server.answers["domainxml"] = {"kind": "VirtualMachineDomainXML", "xml": "<domain/>\n"}

    assert await domainxml.show(way, "testvm") == "<domain/>"
    server.refusals = [errors.BadRequest("the virtual machine has no guest now")]
    with pytest.raises(Failure, match=r"read the domain XML of virtual machine default/testvm: the virtual machine has no guest now"):
        await domainxml.show(way, "testvm")
    assert {(method, path.rsplit("/", 2)[-1]) for method, path, _ in server.requests} == {("GET", "domainxml")}


async def test_each_viewer_connection_has_its_own_websocket(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async def load() -> Access:
        return way

    async with asyncio.TaskGroup() as group:
        task = group.create_task(displays.Vnc("testvm", load).run(port=0, proxy_only=True))
        said = ""
        while not said:
            await asyncio.sleep(0.01)
            said = capsys.readouterr().out
        port = json.loads(said)["port"]
        assert not capsys.readouterr().err
        server.warnings = ['299 - "virtual machine \\"testvm\\" is paused"']
        for text in (b"hello", b"again"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.readexactly(len(RFB)) == RFB
            writer.write(text)
            assert await reader.readexactly(5) == text.upper()
            writer.close()
            await until(lambda: not server.open)
        task.cancel()
    assert server.typed == b"helloagain"
    assert capsys.readouterr().err == 'Warning: virtual machine "testvm" is paused\n'


@pytest.mark.parametrize("kind", displays.DISPLAYS)
async def test_a_viewer_is_found_started_and_awaited(
    server: FakeStreams, way: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    display = displays.DISPLAYS[kind]
    viewer = tmp_path / "remote-viewer"
    viewer.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/argument\n')
    viewer.chmod(viewer.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    async def load() -> Access:
        return way

    await display("testvm", load).run(port=0, proxy_only=False)

    assert server.requests[-1][1].endswith(f"/testvm/{kind}")
    assert (tmp_path / "argument").read_text().startswith(f"{kind}://127.0.0.1:")
    viewer.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Failure, match="--proxy-only"):
        await display("testvm", load).run(port=0, proxy_only=False)
    server.refusals = [errors.NotFound("absent")]
    with pytest.raises(Failure, match=f"open the {kind} of virtual machine default/testvm"):
        await display("testvm", load).run(port=0, proxy_only=True)


@pytest.mark.parametrize("proxy_only", [True, False])
async def test_withdrawn_screen_right_ends_viewer_and_command(
    server: FakeStreams,
    way: Access,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    proxy_only: bool,
) -> None:
    viewer = tmp_path / "remote-viewer"
    viewer.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/argument; exec sleep 60\n')
    viewer.chmod(viewer.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    port = 0

    async def load() -> Access:
        return way

    def told() -> int:
        nonlocal port
        argument = tmp_path / "argument"
        text = capsys.readouterr().out if proxy_only else argument.read_text() if argument.exists() else ""
        port = json.loads(text)["port"] if proxy_only and text else int(text.rpartition(":")[2] or 0) if text.strip() else port
        return port

    async def withdraw() -> None:
        await until(told)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(len(RFB)) == RFB
        await server.close(1008, "your permission to create virtualmachines/vnc was revoked")
        assert await reader.read() == b""
        writer.close()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(withdraw())
        assert await displays.show(displays.Vnc, "testvm", load, port=0, proxy_only=proxy_only) == 1

    assert capsys.readouterr().err == "error: the screen of testvm was closed: your permission to create virtualmachines/vnc was revoked\n"
    assert len(server.requests) == 1


async def test_a_program_on_the_port_has_a_usb_slot(server: FakeStreams, way: Access, capsys: pytest.CaptureFixture[str]) -> None:
    async def load() -> Access:
        return way

    for slot, query in ((None, {}), (0, {"slot": "0"}), (3, {"slot": "3"})):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(usbredir.redirect("testvm", load, slot=slot, port=0, device=None))
            said = ""
            while not said:
                await asyncio.sleep(0.01)
                said = capsys.readouterr().out
            reader, writer = await asyncio.open_connection("127.0.0.1", json.loads(said)["port"])
            assert (await reader.readexactly(len(server.scrollback))).startswith(SCREENFUL)
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"HELLO"
            writer.close()
            await until(lambda: not server.open)
            task.cancel()
        assert server.queries[-1] == query
    assert {path.rsplit("/", 2)[-1] for _, path, _ in server.requests} == {"usbredir"}


async def test_a_usb_device_is_redirected_by_the_program_for_it(
    server: FakeStreams, way: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "usbredirect"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    async def load() -> Access:
        return way

    assert await usbredir.redirect("testvm", load, slot=1, port=0, device="1050:0407") == 0
    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments[:3] == ["--device", "1050:0407", "--to"]
    assert arguments[3].startswith("127.0.0.1:")
    assert not server.open

    program.unlink()
    assert await usbredir.redirect("testvm", load, slot=1, port=0, device="1050:0407") == 1
    assert "error: usbredirect is not on PATH" in capsys.readouterr().err
    server.refusals = [errors.Conflict("slot 1 is in use")]
    assert await usbredir.redirect("testvm", load, slot=1, port=0, device=None) == 1
    assert "(Conflict): cannot open the usbredir of virtual machine default/testvm: slot 1 is in use" in capsys.readouterr().err


def test_a_usb_device_is_named_as_its_program_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert flags.parse(["usbredir", "a", "--device", "1050:0407"]).device == "1050:0407"
    assert flags.parse(["usbredir", "vm/a", "--device", "1-12", "--slot", "3"]).slot == 3
    assert flags.parse(["usbredir", "a"]).slot is None
    for wrong in ("--device=--help", "--device=1050", "--device=", "--slot=4", "--slot=-1"):
        with pytest.raises(SystemExit) as end:
            flags.parse(["usbredir", "a", wrong])
        assert end.value.code == 1
    assert "argument --device: '1050' is not a USB device" in capsys.readouterr().err


async def test_a_kubeconfig_with_a_credential_plugin_is_loaded(url: str, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from-the-plugin"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}}
    path = write_kubeconfig(tmp_path / "config", url + "/", user, namespace="guests")

    found = await access.load(Selection(impersonate_user="jane", impersonate_groups=("a", "b")), {"KUBECONFIG": str(path)})

    assert (found.server, found.namespace) == (url, "guests")
    assert found.headers[1:] == (
        ("Authorization", "Bearer from-the-plugin"),
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
    )
    assert "from-the-plugin" not in repr(found)
    plugin.write_text("#!/bin/sh\necho 'no ticket, log in first' >&2\nexit 3\n")
    with pytest.raises(Failure, match="log in first"):
        await access.load(Selection(kubeconfig=str(path)))


async def test_flags_choose_another_cluster_and_user(url: str, tmp_path: Path) -> None:
    path = str(write_kubeconfig(tmp_path / "config", url, {"token": "mine"}))

    changed = await access.load(Selection(kubeconfig=path, cluster="two", user="other", namespace="x"))
    only_user = await access.load(Selection(kubeconfig=path, user="other"))

    assert (changed.server, changed.namespace, changed.headers[1:]) == ("http://127.0.0.1:1", "x", (("Authorization", "Bearer others"),))
    assert (only_user.server, only_user.namespace, only_user.headers[1:]) == (url, "default", (("Authorization", "Bearer others"),))
    with pytest.raises(Failure, match="nowhere"):
        await access.load(Selection(kubeconfig=path, context="nowhere"))
    with pytest.raises(Failure, match="does not exist"):
        await access.load(Selection(kubeconfig="/nonexistent"))
    with pytest.raises(Failure, match="kubeconfig"):
        await access.load(Selection(), {"KUBECONFIG": "/nonexistent"})


def test_flags_work_before_and_after_the_command() -> None:
    before, after = flags.parse(["-n", "a", "console", "vm/web"]), flags.parse(["console", "web", "--namespace", "a", "--wait", "1m30s"])

    assert before.selection == after.selection == Selection(namespace="a")
    assert (before.name, after.name, after.wait, after.reconnect) == ("web", "web", 90.0, 60.0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ([], "COMMAND"),
        (["jump", "web"], "invalid choice: 'jump'"),
        (["start"], "NAME"),
        (["start", ""], "'' does not name a virtual machine"),
        (["console", "web", "another"], "unrecognized arguments: another"),
        (["start", "web", "--force"], "unrecognized arguments: --force"),
        (["console", "pod/web"], "'pod/web' does not name a virtual machine"),
        (["console", "web", "--wait", "soon"], "'soon' is not a duration"),
        (["console", "web", "--wait", "9" * 30 + "h"], "of at most a year (8760h)"),
        (["console", "web", "--reconnect=-5s"], "a duration must not be negative"),
        (["vnc", "web", "--port", "99999"], "'99999' is not a port (0 to 65535)"),
        (["vnc", "web", "--port", "65536"], "'65536' is not a port (0 to 65535)"),
        (["vnc", "web", "--port", "-1"], "'-1' is not a port (0 to 65535)"),
        (["vnc", "web", "--port", "http"], "'http' is not a port (0 to 65535)"),
    ],
)
def test_usage_error_exits_1_with_one_line_as_kubectl(capsys: pytest.CaptureFixture[str], wrong: list[str], said: str) -> None:
    assert entry.main(wrong) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: ")
    assert said in lines[0]
    assert lines[1].startswith("See 'kubectl virt")
    assert len(lines) == 2


def test_console_help_explains_shared_scrollback(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["console", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "including what earlier users typed; the next user sees yours." in said
    assert entry.main(["vnc", "--help"]) == 0
    assert "earlier users typed" not in capsys.readouterr().out


@dataclass(frozen=True)
class Done:
    code: int | None
    out: str
    err: str


async def program(tmp_path: Path, url: str, *arguments: str, shell: str = 'exec "$@"') -> Done:
    """Run kubectl-virt through this shell script, with its command as ``$@``; return exit status and output."""
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", shell, "sh", sys.executable, "-m", "apiserver.kubectl", *arguments,
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        # With a buffer, unflushed output shows.
        env={**os.environ, "KUBECONFIG": str(path), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    out, err = await process.communicate()
    assert b"Traceback" not in err
    return Done(process.returncode, out.decode(), err.decode())


NOBODY_READS = """{ trap '' PIPE; while echo 2>/dev/null; do sleep 0.05; done; trap - PIPE; "$@"; echo $? >&2; } | true"""
"""Starts after its output's reader has gone."""


@pytest.mark.parametrize("arguments", [("start", "testvm"), ("console", "testvm"), ("--help",)], ids=" ".join)
async def test_closed_output_ends_the_program_like_sigpipe(
    url: str, server: FakeStreams, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = await program(tmp_path, url, *arguments, shell=NOBODY_READS)
    assert done.err.splitlines()[-1] == "141"
    assert "rror" not in done.err


@pytest.mark.parametrize("arguments", [("start", "testvm"), ("console", "testvm"), ("--help",)], ids=" ".join)
async def test_output_that_cannot_be_written_is_a_line_and_1(
    url: str, server: FakeStreams, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = await program(tmp_path, url, *arguments, shell='exec "$@" >/dev/full')
    assert done.code == 1
    assert "No space left on device" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--server", "ftp://x"),
        ("--server", "http://["),
        ("--server", "https://127.0.0.1:99999"),
        ("--server", "http://a..b"),
        ("--server", "http://a b"),
        ("--token", "a\r\nX: y"),
        ("--as", "a\nb"),
        ("--as", "\udcff"),
        ("--namespace", "\udcff"),
        ("--context", "nowhere"),
        ("--kubeconfig", "/"),
        ("--kubeconfig", "/etc/passwd"),
        ("--kubeconfig", "/dev/null"),
    ],
)
@pytest.mark.parametrize("command", ["start", "console"])
def test_a_wrong_value_is_one_line_that_says_so(
    url: str, server: FakeStreams, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, flag: str, value: str
) -> None:
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    assert entry.main([command, "testvm", "--kubeconfig", str(path), flag, value]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "this is a bug" not in said
    assert said.count("\n") == 1
    assert server.requests == []


async def test_server_given_by_flag_is_verified_by_tls(url: str, tmp_path: Path) -> None:
    path = str(write_kubeconfig(tmp_path / "config", url, {"token": "mine"}))

    found = await access.load(Selection(kubeconfig=path, server="https://127.0.0.1:1/"))

    assert found.server == "https://127.0.0.1:1"
    assert found.tls is not None
    assert found.tls.verify_mode == ssl.CERT_REQUIRED
    assert (await access.load(Selection(kubeconfig=path, server="127.0.0.1:1"))).server == "http://127.0.0.1:1"
    alone = await access.load(Selection(server="http://127.0.0.1:1", token="t"), {"KUBECONFIG": "/nonexistent"})
    assert (alone.server, alone.headers[1:]) == ("http://127.0.0.1:1", (("Authorization", "Bearer t"),))
    with pytest.raises(Failure, match="Impersonate-User"):
        await access.load(Selection(kubeconfig=path, impersonate_user="a\nb"))


async def test_a_viewer_that_does_not_start_is_a_line(
    server: FakeStreams, way: Access, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    viewer = tmp_path / "remote-viewer"
    viewer.write_bytes(b"\x7fELF is no program")
    viewer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    async def load() -> Access:
        return way

    with pytest.raises(Failure, match="Exec format error"):
        await displays.Vnc("testvm", load).run(port=0, proxy_only=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("late", [False, True])
async def test_a_signal_ends_the_program_without_a_word(
    url: str, server: FakeStreams, tmp_path: Path, number: signal.Signals, late: bool
) -> None:
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    process = await asyncio.create_subprocess_exec(
        # Shells without job control, and nohup, may ignore these signals.
        "env", "--default-signal", sys.executable, "-v", "-m", "apiserver.kubectl",
        "console", "testvm", "--kubeconfig", str(path), "--linger", "1h",
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    mark = b"Connected to the console" if late else b"import 'asyncio'"
    while mark not in (line := await process.stderr.readline()):
        assert line, "it ended too early"
    process.send_signal(number)
    rest = await process.stderr.read()

    assert await process.wait() in ((128 + number,) if late else (-number, 128 + number))
    assert b"Traceback" not in rest


async def test_the_program_restores_the_terminal_when_it_is_ended(url: str, server: FakeStreams, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    far, near = pty.openpty()
    before = termios.tcgetattr(near)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apiserver.kubectl", "console", "testvm", "--kubeconfig", str(path),
        cwd=ROOT, stdin=near, stdout=near, stderr=near,
    )  # fmt: skip
    await until(lambda: server.open, 30)
    await until(lambda: not termios.tcgetattr(near)[3] & termios.ECHO)

    process.send_signal(signal.SIGTERM)

    assert await process.wait() == 128 + signal.SIGTERM
    assert termios.tcgetattr(near) == before
    shown(far, terminal.MODES)
    os.close(far)
    os.close(near)


def shown(far: int, last: bytes) -> bytes:
    said = b""
    while not said.rstrip().endswith(last):
        assert select.select([far], [], [], 30)[0], said
        said += os.read(far, 65536)
    return said


def test_terminal_replies_do_not_reach_the_shell() -> None:
    far, near = pty.openpty()

    def answer() -> None:
        os.write(far, b"\x1b]lid >/tmp/owned\r")
        assert select.select([near], [], [], 30)[0]

    with terminal.raw(near, near, wait=answer):
        os.write(far, b"\x1d")
        assert os.read(near, 100) == b"\x1d"
    os.write(far, b"typed\r")
    assert os.read(near, 100) == b"typed\n"
    os.close(far)
    os.close(near)


def test_terminal_modes_are_reset_after_a_guest_except_on_pipes() -> None:
    far, near = pty.openpty()
    out, into = os.pipe()
    tty.setraw(near)

    def at_once() -> None:
        pass

    for keys in (near, into):
        with terminal.raw(keys, near, wait=at_once):
            os.write(near, b"\x1b[?1003h\x1b[?1049h")
        said = shown(far, b"\x1b[?25h\x1b[0m")
        for mode in (1, 1000, 1002, 1003, 1004, 1006, 1049, 2004):
            assert said.rindex(f"\x1b[?{mode}l".encode()) > said.index(b"1049h")
    with terminal.raw(near, into, wait=at_once):
        pass
    os.close(into)
    assert os.read(out, 100) == b""
    for each in (far, near, out):
        os.close(each)


async def test_the_end_of_a_guest_is_said_on_the_screen_that_stays(server: FakeStreams, way: Access) -> None:
    far, near = pty.openpty()

    async def load() -> Access:
        return way

    with open(near, "w", closefd=False) as screen, contextlib.redirect_stderr(screen):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            task = group.create_task(console.Session(console.Settings("testvm"), load, stdin=near, stdout=near).run())
            await until(lambda: server.open)
            await server.close(1000, "it is off")
            await task
    said = shown(far, b"it is off.")
    assert said.index(terminal.MODES) < said.index(b"The console was closed: it is off.")
    os.close(far)
    os.close(near)


async def test_the_program_ends_with_1_and_says_why(url: str, server: FakeStreams, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    server.refusals = [errors.NotFound('virtualmachines.kubevirt.io "testvm" not found')]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apiserver.kubectl", "start", "testvm", "--kubeconfig", str(path),
        cwd=ROOT, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    _, said = await process.communicate()

    assert process.returncode == 1
    assert said.decode().splitlines() == [
        'Error from server (NotFound): cannot start virtual machine default/testvm: virtualmachines.kubevirt.io "testvm" not found'
    ]


@pytest.mark.parametrize("command", ["start", "console"])
@pytest.mark.parametrize("where", [["..", "-n", "a"], ["testvm", "-n", "a/../b"], ["a%2fb"]], ids=" ".join)
def test_name_with_a_path_is_an_error_without_a_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, where: list[str]
) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1", {"token": "mine"})
    assert entry.main([command, *where, "--kubeconfig", str(path)]) == 1
    assert capsys.readouterr().err.startswith("error: invalid resource name")
