from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from apiserver.apis.virt.places import layout
from handler.streams import pipe
from handler.streams.spice import Channel
from launcher.protocol import messages
from tests import spice_peer
from tests.host.launcher.sandbox import READY, Launcher, a_tiny_machine

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
INIT = spice_peer.message(spice_peer.DISPLAY_INIT, spice_peer.CACHES)
ENDS = {"before its first message": b"", "within it": INIT[:9], "behind it": INIT, "behind it, with an error": INIT + b"\xff" * 64}


@contextmanager
def guarded(pod: Launcher) -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()

    async def copy() -> None:
        channel = Channel()
        client_reader, client_writer = await asyncio.open_unix_connection(sock=theirs)
        reader, writer = await asyncio.open_unix_connection(sock=pod.socket(layout.SPICE_SOCKET))

        async def from_guest() -> None:
            while data := await reader.read(1 << 16):
                writer.write(channel.from_guest(data))
                client_writer.write(data)

        async with asyncio.TaskGroup() as tasks:
            copying = tasks.create_task(from_guest())
            while data := await client_reader.read(1 << 16):
                writer.write(channel.from_client(data))
            copying.cancel()
        await pipe.settle(channel, reader, writer)
        writer.close()
        client_writer.close()

    with closing(ours):
        copies = threading.Thread(target=asyncio.run, args=(copy(),))
        copies.start()
        yield ours
        ours.shutdown(socket.SHUT_WR)
        copies.join()


@pytest.mark.parametrize("last", ENDS.values(), ids=ENDS)
def test_guest_survives_spice_viewers_that_leave_early(start: Callable[[], Launcher], last: bytes) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine(devices={"graphics": [{"type": "spice"}], "interfaces": []})))
        viewer.expect(READY)
        for _ in range(3):
            with spice_peer.Session(lambda: pod.socket(layout.SPICE_SOCKET)) as session, guarded(pod) as link:
                spice_peer.Channel(link, spice_peer.DISPLAY, session.number)
                link.sendall(last)
        with spice_peer.Session(lambda: pod.socket(layout.SPICE_SOCKET)) as session, session.open(spice_peer.INPUTS) as keyboard:
            keyboard.press(0x1E)
            viewer.expect("key 9e")
