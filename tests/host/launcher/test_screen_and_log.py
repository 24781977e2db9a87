from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress

import pytest

from apiserver.apis.virt.places import layout
from apiserver.apis.virt.spec import screenshot
from controller.reconcilers.launcher_pods import consoles
from launcher.protocol import messages
from tests import spice_peer
from tests.given_time import Deadline
from tests.host.launcher.sandbox import NO_GRAPHICS, READY, Launcher, a_tiny_machine
from tests.pictures import decoded

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]


def read_to_end(connection: socket.socket) -> bytes:
    with connection:
        connection.settimeout(60)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_screenshot_shows_the_screen_also_of_a_paused_guest(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        assert b"no guest runs in this pod" in read_to_end(pod.socket(layout.SCREENSHOT_SOCKET))
        client.ask(messages.Sync(a_tiny_machine(devices={"graphics": [{"type": "vnc"}], "interfaces": []})))
        viewer.expect(READY)
        running = read_to_end(pod.socket(layout.SCREENSHOT_SOCKET))
        assert not screenshot.problem(running)
        width, height, rows = decoded(running)
        assert (width, height) >= (640, 400)
        assert len(set(rows)) > 2, "the screen is empty"
        client.ask(messages.Suspend())
        assert decoded(read_to_end(pod.socket(layout.SCREENSHOT_SOCKET)))[:2] == (width, height)


def test_guest_sees_the_keys_of_a_spice_client(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine(devices={"graphics": [{"type": "spice"}], "interfaces": []})))
        viewer.expect(READY)
        with spice_peer.Session(lambda: pod.socket(layout.SPICE_SOCKET)) as session:
            assert {spice_peer.DISPLAY, spice_peer.INPUTS} <= session.channels
            with session.open(spice_peer.DISPLAY), session.open(spice_peer.INPUTS) as keyboard:
                keyboard.press(0x1E)
                viewer.expect("key 1e")
                viewer.expect("key 9e")


def test_guest_without_a_screen_has_no_screenshot(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine()))
        viewer.expect(READY)
        said = read_to_end(pod.socket(layout.SCREENSHOT_SOCKET))
        assert said.startswith(b"take a screenshot of domain ")
        assert len(said) <= screenshot.MAX_TEXT


def test_a_pipe_has_all_output_of_the_guest(start: Start) -> None:
    pod = start()
    pipe = pod.run_directory / layout.CONSOLE_PIPE
    command = [each.replace(consoles.PIPE, str(pipe)) for each in consoles.COMMAND]
    with pod.client() as client, pod.console() as viewer, subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        client.ask(messages.Sync(a_tiny_machine(devices={**NO_GRAPHICS, "logSerialConsole": True})))
        viewer.expect(READY)
        viewer.ask("echo said-to-the-guest")
        with suppress(EOFError):
            client.ask(messages.Shutdown(0))
        said = reader.stdout.read()
    assert said.count(READY.encode()) >= 1
    assert b"said-to-the-guest" in said
    assert reader.returncode == 0
    assert pod.wait() == 0


def test_log_begins_with_the_boot_and_follows_the_guest(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(messages.Sync(a_tiny_machine()))
        viewer.expect(READY)
        viewer.ask("echo before-the-reset")
        with pod.socket(layout.log_socket(0)) as follower:
            follower.settimeout(1)
            client.ask(messages.Operate("a", 1, "Reset"))
            viewer.expect(READY)
            followed, deadline = b"", Deadline(60, pod.qemu)
            while followed.count(READY.encode()) < 2 and not deadline.is_over:
                with suppress(TimeoutError):
                    followed += follower.recv(1 << 16)
        kept = read_to_end(pod.socket(layout.log_socket(0)))
        for found in (followed, kept):
            assert found.count(READY.encode()) == 2
            assert found.index(READY.encode()) < found.index(b"before-the-reset") < found.rindex(READY.encode())
