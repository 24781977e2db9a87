from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from websockets.exceptions import ConnectionClosedError

from apiserver.apis.meta import errors
from apiserver.apis.virt.places.layout import CONSOLE_REPLAY_BYTES
from apiserver.kubectl import access, commands, console, displays, http, streams, terminal, verbs
from apiserver.kubectl.access import Access, Selection
from apiserver.kubectl.messages import Failure
from apiserver.kubectl.scrollback import Overlap, Scrollback
from tests import system_calls
from tests.component.test_kubectl_virt import ROOT, Attached, attached, program, until, write_kubeconfig
from tests.fakes.streams import RFB, SCREENFUL, FakeStreams


async def test_a_credential_that_expires_again_is_loaded_again(server: FakeStreams, way: Access) -> None:
    one, loaded = Attached(way, console.Settings("testvm", 0.0, 5.0), terminal=True), 0

    async def load() -> Access:
        nonlocal loaded
        loaded += 1
        return way

    one.session._load = load
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        task = group.create_task(one.session.run())
        for times in (1, 2, 3):
            await until(lambda: len(server.open) == 1)
            assert loaded == times
            server.refusals = [errors.Unauthorized("Unauthorized")]
            await server.close(3000, "your credential is no longer valid")
            await until(lambda: not server.refusals)
        task.cancel()
    one.close()


async def test_invalid_new_credential_ends_the_session(server: FakeStreams, way: Access) -> None:
    one = Attached(way, console.Settings("testvm", 0.0, 60.0), terminal=True)

    async def expire() -> None:
        await until(lambda: server.open)
        server.refusals = [errors.Unauthorized("Unauthorized")] * 100
        await server.close(3000, "your credential is no longer valid")

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(expire())
        with pytest.raises(Failure, match="You must be logged in"):
            await one.session.run()
    one.close()
    assert len(server.requests) == 3


@contextlib.asynccontextmanager
async def screen(
    load: Callable[[], Awaitable[Access]], capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Callable[[], Coroutine[None, None, bytes]]]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        task = group.create_task(displays.Vnc("testvm", load).run(port=0, proxy_only=True))
        said = ""
        while not said:
            await asyncio.sleep(0.01)
            said = capsys.readouterr().out

        async def connect() -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", json.loads(said)["port"])
            shown = await reader.read(len(RFB))
            writer.close()
            return shown

        yield connect
        task.cancel()


async def test_screen_credentials_are_reloaded_only_when_refused(
    server: FakeStreams, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin, runs = tmp_path / "plugin", tmp_path / "runs"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "RUN"}}
    said = json.dumps(credential).replace("RUN", "'$(wc -l <" + str(runs) + ")'")
    plugin.write_text(f"#!/bin/sh\necho >> {runs}\necho '{said}'\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}}
    selection = Selection(kubeconfig=str(write_kubeconfig(tmp_path / "config", url, user)))

    def shown() -> list[str]:
        return [dict(headers)["Authorization"].removeprefix("Bearer ") for _, _, headers in server.requests]

    async with screen(lambda: access.load(selection), capsys) as connect:
        for _ in range(3):
            assert await connect() == RFB
        assert shown() == ["1", "1", "1"]
        server.refusals = [errors.Unauthorized("it ran out")]
        assert await connect() == RFB
        assert await connect() == RFB
        assert shown()[3:] == ["1", "2", "2"]
        server.refusals = [errors.Forbidden("no"), errors.Unauthorized("it ran out"), errors.Unauthorized("not again")]
        assert await connect() == b""
        assert await connect() == b""
        assert shown()[6:] == ["2", "2", "3"]
        assert await connect() == RFB
        assert shown()[9:] == ["3"]
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == ["no", "again)"]


async def test_viewers_that_come_at_once_load_new_credentials_once(
    server: FakeStreams, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = 0

    async def load() -> Access:
        nonlocal loaded
        loaded += 1
        await asyncio.sleep(0.05)
        return Access(url, "default")

    async with screen(load, capsys) as connect:
        assert await connect() == RFB
        server.refusals = [errors.Unauthorized("it ran out")] * 3
        async with asyncio.TaskGroup() as group:
            viewers = [group.create_task(connect()) for _ in range(3)]
    assert [each.result() for each in viewers] == [RFB] * 3
    assert loaded == 2


async def test_failed_connection_reloads_the_credentials(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ways = iter([Access(url, "default"), Access("http://127.0.0.1:1", "default"), Access(url, "default")])
    loaded: list[Access] = []

    async def load() -> Access:
        loaded.append(next(ways))
        return loaded[-1]

    proxy = displays.Vnc("testvm", load)
    proxy._access = await load()
    assert await proxy._loaded() is loaded[0]
    assert await proxy._loaded(worn=loaded[0]) is loaded[1]
    with pytest.raises(streams.Unreachable):
        async with proxy.opened_again():
            pass
    async with proxy.opened_again() as connection:
        assert await connection.recv() == RFB
    assert len(loaded) == 3


@pytest.mark.parametrize("refusal", [errors.Unauthorized("no"), errors.Forbidden("no"), errors.NotFound("no"), errors.Invalid("no")])
async def test_permanent_refusals_are_not_retried(server: FakeStreams, way: Access, refusal: errors.StatusError) -> None:
    server.refusals = [refusal] * 100
    one = Attached(way, console.Settings("testvm", wait_seconds=60.0), terminal=True)
    async with asyncio.timeout(30):
        with pytest.raises(Failure, match="no"):
            await one.session.run()
    one.close()
    assert len(server.requests) == 1


async def test_a_server_that_is_not_there_is_not_waited_for() -> None:
    one = Attached(Access("http://127.0.0.1:1", "default"), console.Settings("testvm", wait_seconds=60.0), terminal=True)
    async with asyncio.timeout(30):
        with pytest.raises(Failure, match="Unable to connect"):
            await one.session.run()
    one.close()


async def test_typing_without_a_connection_keeps_the_session(server: FakeStreams, way: Access) -> None:
    server.refusals = [errors.ServiceUnavailable("starting")] * 1000
    async with attached(way, wait=60) as (one, task):
        for _ in range(2 * console.MAX_TYPED_AHEAD):
            one.type(b"x")
            await asyncio.sleep(0.001)
            await until(lambda: one.session._keys.full() or one.session._keys.qsize())
        assert not task.done()
        one.type(b"\x1d")
        async with asyncio.timeout(30):
            await task


async def test_unsent_script_input_goes_to_the_next_connection(way: Access) -> None:
    one = Attached(way, console.Settings("testvm"), terminal=False)
    one.session._keys.put_nowait(b"first")
    one.session._keys.put_nowait(b"second")
    sent: list[bytes] = []

    async def broken(_: bytes) -> None:
        raise ConnectionClosedError(None, None)

    async def good(content: bytes) -> None:
        sent.append(content)

    with pytest.raises(ConnectionClosedError):
        await one.session._type(SimpleNamespace(send=broken))  # type: ignore[arg-type]  # nothing but its send is used
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await one.session._type(SimpleNamespace(send=good))  # type: ignore[arg-type]  # all that is asked of it
    one.close()
    assert sent == [b"first", b"second"]


class Unwritable(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, _: str) -> int:
        raise self.error


async def test_hung_up_terminal_ends_no_session(server: FakeStreams, way: Access) -> None:
    with contextlib.redirect_stderr(Unwritable(OSError(5, "Input/output error"))):
        async with attached(way) as (one, _):
            await until(lambda: one.read() == SCREENFUL)
            server.cut()
            await until(lambda: len(server.requests) > 1 and len(server.open) == 1)
            await until(lambda: not one.session._is_cut_off)
            one.type(b"a")
            await until(lambda: one.read().endswith(b"A"))


class Counted(console.Session):
    printed = 0

    async def _write(self, content: bytes) -> None:
        self.printed += 1
        await super()._write(content)


async def test_start_of_a_connection_is_compared_briefly(server: FakeStreams, way: Access) -> None:
    server.scrollback = b"the first line of the boot\r\nthe second line of the boot\r\n"
    async with attached(way, replay=0.05, session=Counted) as (one, _):
        await until(lambda: one.read() == server.scrollback)
        seen = server.scrollback
        server.scrollback = b"the first line of the boot\r\n"
        server.cut()
        await until(lambda: one.read() == seen + server.scrollback)
        assert isinstance(one.session, Counted)
        printed = one.session.printed
        await asyncio.sleep(0.3)
        assert one.session.printed == printed
        one.type(b"a")
        await until(lambda: one.read().endswith(b"first line of the boot\r\nA"))


async def test_held_output_is_printed_when_the_guest_ends(server: FakeStreams, way: Access) -> None:
    server.scrollback = b"the first line of the boot\r\nthe second line of the boot\r\n"
    async with attached(way, replay=60.0) as (one, task):
        await until(lambda: one.read() == server.scrollback)
        server.scrollback = b"the first line of the boot\r\n"
        server.cut()
        await until(lambda: len(server.subprotocols) == 2 and server.open)
        await server.close(1000, "the guest powered off")
        async with asyncio.timeout(30):
            await task
        assert one.read().endswith(b"second line of the boot\r\nthe first line of the boot\r\n")


def test_first_connection_holds_nothing_scrollback_is_limited() -> None:
    assert Overlap(b"").take(b"login: ") == b"login: "
    seen = Scrollback(limit=10)
    for _ in range(5):
        seen.add(b"abcdefgh")
    assert seen.content == b"ghabcdefgh"


async def test_no_credential_is_sent_where_an_answer_points(way: Access, server: FakeStreams) -> None:
    """Otherwise a redirecting server could collect the token."""
    asked: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response({"kind": "VirtualMachine"})

    async def redirect(_: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    app = web.Application()
    app.router.add_put("/elsewhere", elsewhere)
    app.router.add_put("/{path:.*}", redirect)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        there = Access(f"http://127.0.0.1:{runner.addresses[0][1]}", "default", headers=way.headers)
        with pytest.raises(Failure, match="stop virtual machine default/testvm: the server answered 307: it redirects to another server"):
            await verbs.request(there, "PUT", "/testvm/stop", "stop virtual machine default/testvm", body={})
    finally:
        await runner.cleanup()
    assert asked == []


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
async def test_no_stream_is_opened_where_an_answer_points(status: int, host: str) -> None:
    """The library would send credentials there."""
    asked: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        where = f"ws://{host}:{other.sockets[0].getsockname()[1]}/"
        writer.write(f"HTTP/1.1 {status} Elsewhere\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(elsewhere, host, 0) as other, await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
        way = Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "default", headers=(("Impersonate-User", "jane"),))
        with pytest.raises(streams.UpgradeFailed) as failed:
            async with streams.opened(way, "testvm", "console"):
                pass
    said = (
        f"open the console of virtual machine default/testvm: the server answered {status}: it redirects "
        "to another server, which is not followed"
    )
    assert str(failed.value.failure) == f"Error from server: cannot {said}"
    assert asked == []


def test_an_interrupt_that_asyncio_did_not_see_is_130() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert commands.exit_code(interrupted) == 130


def test_a_mistake_of_ours_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong() -> int:
        raise ExceptionGroup("several", [ExceptionGroup("more", [KeyError("name")])])

    assert commands.exit_code(wrong) == 1
    assert capsys.readouterr().err == "error: KeyError in kubectl virt; this is a bug: 'name'\n"


async def test_failure_exits_1_though_unreadable(server: FakeStreams, url: str, tmp_path: Path) -> None:
    server.refusals = [errors.NotFound("testvm not found")]
    done = await program(tmp_path, url, "start", "testvm", shell='"$@" 2>/dev/full; echo $?')
    assert (done.out, done.err) == ("1\n", "")


@pytest.mark.parametrize("blocking", [True, False])
async def test_everything_is_written_to_a_reader_that_is_slow(blocking: bool) -> None:
    far, near = os.pipe()
    os.set_blocking(near, blocking)
    content = bytes(range(256)) * 2048
    found = bytearray()

    async def read_slowly() -> None:
        while part := await asyncio.to_thread(os.read, far, 1 << 16):
            found.extend(part)
            await asyncio.sleep(0.005)

    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(read_slowly())
        await terminal.write(near, content)
        os.close(near)
    os.close(far)
    assert bytes(found) == content


async def test_input_that_another_reader_took_is_waited_for() -> None:
    """Another program on this terminal took the input."""
    far, near = os.pipe()
    os.set_blocking(far, False)
    os.write(near, b"first")
    taken: list[bytes] = []

    def meanwhile() -> None:
        if not taken:
            taken.append(os.read(far, 9))
            asyncio.get_running_loop().call_later(0.01, os.write, near, b"key")

    with system_calls.at(os.read, meanwhile):
        async with asyncio.timeout(30):
            assert await terminal.read(far) == b"key"
    assert taken == [b"first"]
    os.close(far)
    os.close(near)


def test_unwritable_failure_message_is_no_second_failure() -> None:
    def refused() -> int:
        raise Failure("error: no")

    with contextlib.redirect_stderr(Unwritable(OSError(28, "No space left on device"))):
        assert commands.exit_code(refused) == 1


async def test_a_script_without_input_waits_for_the_machine_too(server: FakeStreams, way: Access) -> None:
    server.refusals = [errors.BadRequest("it is not running")] * 3
    one = Attached(way, console.Settings("testvm", wait_seconds=30.0, linger_seconds=0.2), terminal=False)
    os.close(one.far)
    async with asyncio.timeout(10):
        await one.session.run()
    assert one.read() == SCREENFUL
    one.close()


async def test_a_whole_scrollback_may_come_in_one_message(server: FakeStreams, way: Access) -> None:
    server.scrollback = b"0123456789abcdef" * (CONSOLE_REPLAY_BYTES // 16)
    async with attached(way) as (one, _):
        await until(lambda: one.read() == server.scrollback)


async def test_a_signal_that_nohup_had_ignored_is_ignored(server: FakeStreams, url: str, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", url, {"token": "mine"})
    process = await asyncio.create_subprocess_exec(
        "env", "--default-signal", "--ignore-signal=HUP", sys.executable, "-m", "apiserver.kubectl",
        "console", "testvm", "--kubeconfig", str(path), "--linger", "1h",
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until(lambda: server.open, 30)
    process.send_signal(signal.SIGHUP)
    await asyncio.sleep(0.3)
    assert server.open
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize(("size", "whole"), [(3 << 20, True), (http.MAX_BODY_BYTES, False)], ids=["in pieces", "without an end"])
async def test_a_long_answer_is_read_to_its_end_or_said_to_be_too_long(size: int, whole: bool) -> None:
    body = b'{"items": ["%b"]}' % (b"x" * size)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for start in range(0, len(body), 1 << 20):
            await response.write(body[start : start + (1 << 20)])
        return response

    application = web.Application()
    application.router.add_get("/all", answer)
    async with TestServer(application) as server:
        asked = verbs.request(Access(str(server.make_url("")).rstrip("/"), "default"), "GET", "/all", "list all")
        if whole:
            assert len((await asked)["items"][0]) == size
        else:
            with pytest.raises(Failure, match=r"list all: the response is larger than 16 MiB"):
                await asked
