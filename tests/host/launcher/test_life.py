from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Callable

import pytest

from launcher.protocol import messages
from tests.cluster import processes
from tests.given_time import given, look
from tests.host.launcher.sandbox import DEBIAN_KERNEL_BOOT, READY, Launcher, a_machine, a_tiny_machine, alive, wait_for

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]
Start = Callable[[], Launcher]
SYNC = messages.Sync(a_tiny_machine())
LINUX = messages.Sync(a_machine(firmware={"kernelBoot": DEBIAN_KERNEL_BOOT}))


def test_guest_boots_in_seconds_and_the_launcher_stays_small(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    begin, before = time.monotonic(), look()
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        answered = time.monotonic() - begin
        status = client.ask(LINUX)
        synced = time.monotonic() - begin
        viewer.expect("GUEST-READY")
        prompt, booted = time.monotonic() - begin, look()
        assert status.started
        assert status.domain is not None
        assert (status.domain.name, status.domain.state, status.domain.type) == ("default_testvm", "running", "qemu")
        time.sleep(1)  # after the work of the start
        pids = {"launcher": pod.process.pid, "libvirtd": pod.libvirtd(), "qemu": pod.qemu()[0]}
        figures = {name: processes.resident_kib(pid) / 1024 for name, pid in pids.items()}
        with capsys.disabled():
            sizes = ", ".join(f"{name} {size:.1f} MiB" for name, size in figures.items())
            print(f"\n[launcher answers {answered:.2f} s, domain runs {synced:.2f} s, prompt {prompt:.2f} s; resident: {sizes}]")
        assert figures["launcher"] + figures["libvirtd"] < 70
        assert given(before, booted) < 40


def test_two_viewers_see_the_same_and_a_late_one_gets_the_replay(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as first, pod.console() as second:
        client.ask(SYNC)
        first.expect(READY)
        second.expect(READY)
        first.type("echo from-the-first\n")
        second.expect("from-the-first")
        second.type("echo from-the-second\n")
        first.expect("from-the-second")
        with pod.console() as late:
            assert READY in late.expect("from-the-second")
            client.until(lambda status: status.consoles == 3)
        client.until(lambda status: status.consoles == 2)


def test_suspend_and_resume_can_be_repeated(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        for _ in range(2):
            domain = client.ask(messages.Suspend()).domain
            assert domain is not None
            assert (domain.state, domain.reason) == ("paused", "user")
        for _ in range(2):
            domain = client.ask(messages.Resume()).domain
            assert domain is not None
            assert domain.state == "running"
        assert viewer.ask("echo still here") == "still here"


def test_a_second_sync_changes_nothing(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.client() as other:
        client.ask(SYNC)
        before = pod.qemu()
        other.ask(messages.Sync(a_tiny_machine(memory={"guest": "256Mi"})))
        assert pod.qemu() == before
        assert isinstance(other.call(messages.Sync(messages.Machine("default", "x", "another", {}, "qemu"))), messages.Refusal)


def test_sigterm_shuts_the_guest_down_and_ends_with_0(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        before = look()
        pod.process.send_signal(signal.SIGTERM)
        viewer.expect("POWER-BUTTON")
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
        assert pod.wait() == 0
        assert given(before, look()) < 5


def test_sigterm_during_the_boot_presses_the_button_repeatedly(start: Start) -> None:
    """Linux boots for seconds, under load half a minute, which the grace period allows."""
    pod = start()
    with pod.client() as client:
        client.ask(messages.Sync(dataclasses.replace(a_machine(), grace_seconds=200.0)))
        pod.process.send_signal(signal.SIGTERM)
        ending = client.until(lambda status: status.ending, seconds=200).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
    assert pod.wait() == 0


def test_sigterm_without_a_guest_ends_at_once(start: Start) -> None:
    pod = start()
    with pod.client():
        before = look()
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0
        assert given(before, look()) < 3


def test_the_log_tells_a_life_in_a_few_lines(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0
    lines = pod.log.read_text().splitlines()
    assert any("the guest is running" in line for line in lines)
    assert any("the guest must power off" in line for line in lines)
    assert any("the domain ended" in line for line in lines)
    assert not [line for line in lines if line.startswith("libvirtd: ") or "/dev/kvm" in line]
    assert len(lines) <= 12, lines


def test_a_deaf_guest_is_destroyed_when_its_time_is_up(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        assert viewer.ask("deaf") == ""
        client.ask(messages.Shutdown(5.0))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "destroyed"
    assert pod.wait() == 0


def test_a_paused_guest_is_resumed_to_shut_down(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        client.ask(messages.Suspend())
        client.ask(messages.Shutdown(10.0))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"


def test_a_guest_that_powers_itself_off_ends_the_launcher_with_0(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        viewer.type("poweroff\n")
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown"
    assert pod.wait() == 0


def test_a_reboot_stays_in_the_same_qemu_and_on_the_same_console(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        before = pod.qemu()
        viewer.type("reboot\n")
        viewer.expect(READY)  # the firmware has reset the VM once more
        assert pod.qemu() == before
        assert client.until(lambda status: status.reboots).reboots == 1
        assert client.ask(messages.Suspend()).reboots == 1


def test_panicked_guest_has_crashed_and_says_so(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        client.ask(messages.Sync(a_tiny_machine(run="panic")))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert (ending.kind, ending.panicked, ending.message) == ("crashed", True, "the guest panicked")
    assert pod.wait() == 1


def test_qemu_killed_is_a_crash_and_ends_with_1(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        os.kill(pod.qemu()[0], signal.SIGKILL)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "crashed"
    assert pod.wait() == 1


def test_killed_libvirtd_leaves_the_guest_under_control(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        qemu, libvirtd = pod.qemu(), pod.libvirtd()
        os.kill(libvirtd, signal.SIGKILL)
        assert viewer.ask("echo here") == "here"
        wait_for(lambda: alive(pod.libvirtd()) and pod.libvirtd() != libvirtd, 20, "another libvirtd")

        def suspended() -> bool:
            answer = client.call(messages.Suspend())
            return isinstance(answer, messages.Reply)

        wait_for(suspended, 20, "the new libvirtd to be connected")
        client.ask(messages.Resume())
        assert pod.qemu() == qemu
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0


def test_guest_end_without_libvirtd_is_noticed(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect(READY)
        os.kill(pod.libvirtd(), signal.SIGSTOP)
        viewer.type("poweroff\n")
        time.sleep(0.5)
        os.kill(pod.libvirtd(), signal.SIGKILL)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind in ("shutdown", "crashed"), ending
    pod.wait()


def test_pod_ends_although_libvirtd_does_not_answer(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        client.ask(messages.Sync(a_tiny_machine(), paused=True))
    qemu = pod.qemu()
    os.kill(pod.libvirtd(), signal.SIGSTOP)
    pod.process.send_signal(signal.SIGTERM)
    assert pod.wait(20) == 0
    for pid in qemu:  # in a pod, the kernel ends them with the first process
        os.kill(pid, signal.SIGKILL)


def test_clients_that_vanish_or_talk_nonsense_change_nothing(start: Start) -> None:
    pod = start()
    with pod.socket("launcher.sock") as connection:
        connection.sendall(b"\x00nonsense\n")
    with pod.client() as client:
        client.ask(SYNC)
    for _ in range(20):
        pod.socket("launcher.sock").close()
    with pod.client() as again, pod.console() as viewer:
        assert again.status.domain is not None
        viewer.expect(READY)
        viewer.type("poweroff\n")
    assert pod.wait() == 0


def test_domain_refused_by_qemu_fails_the_start(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.Sync(a_tiny_machine(cpu={"model": "no-such-model"})))
        assert isinstance(answer, messages.Refusal)
        assert answer.reason == "Failed"
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "start-failed"
        assert "no-such-model" in ending.message
    assert pod.wait() == 1
