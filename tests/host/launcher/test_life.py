from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from launcher.protocol import messages
from tests.host.launcher.sandbox import Launcher, a_machine, alive, resident_mebibytes, wait_for

pytestmark = pytest.mark.host
Start = Callable[[], Launcher]
SYNC = messages.Sync(a_machine())


def test_a_guest_boots_to_its_prompt_in_seconds_and_the_launcher_stays_small(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    begin = time.monotonic()
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        answered = time.monotonic() - begin
        status = client.ask(SYNC)
        synced = time.monotonic() - begin
        viewer.expect("GUEST-READY")
        prompt = time.monotonic() - begin
        assert status.started
        assert status.domain is not None
        assert (status.domain.name, status.domain.state, status.domain.type) == ("default_testvm", "running", "qemu")
        time.sleep(1)
        launcher, libvirtd, qemu = pod.process.pid, pod.libvirtd(), pod.qemu()[0]
        figures = {name: resident_mebibytes(pid) for name, pid in (("launcher", launcher), ("libvirtd", libvirtd), ("qemu", qemu))}
        with capsys.disabled():
            sizes = ", ".join(f"{name} {size:.1f} MiB" for name, size in figures.items())
            print(f"\n[launcher answers {answered:.2f} s, domain runs {synced:.2f} s, prompt {prompt:.2f} s; resident: {sizes}]")
        assert figures["launcher"] + figures["libvirtd"] < 70
        assert prompt < 40


def test_two_viewers_see_the_same_and_a_late_one_gets_the_replay(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as first, pod.console() as second:
        client.ask(SYNC)
        first.expect("GUEST-READY")
        second.expect("GUEST-READY")
        first.type("echo from-the-''first\n")
        second.expect("from-the-first")
        second.type("echo from-the-''second\n")
        first.expect("from-the-second")
        with pod.console() as late:
            assert "GUEST-READY" in late.expect("from-the-second")
            client.until(lambda status: status.consoles == 3)
        client.until(lambda status: status.consoles == 2)


def test_suspend_and_resume_can_be_repeated(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        for _ in range(2):
            domain = client.ask(messages.Suspend()).domain
            assert domain is not None
            assert (domain.state, domain.reason) == ("paused", "user")
        for _ in range(2):
            domain = client.ask(messages.Resume()).domain
            assert domain is not None
            assert domain.state == "running"
        assert viewer.sh("echo still $((40 + 2))") == "still 42"


def test_a_second_sync_changes_nothing(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.client() as other:
        client.ask(SYNC)
        before = pod.qemu()
        other.ask(messages.Sync(a_machine(memory={"guest": "256Mi"})))
        assert pod.qemu() == before
        assert isinstance(other.call(messages.Sync(messages.Machine("default", "x", "another", {}, "qemu"))), messages.Refusal)


def test_sigterm_shuts_the_guest_down_and_ends_with_0(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        begin = time.monotonic()
        pod.process.send_signal(signal.SIGTERM)
        viewer.expect("POWER-BUTTON")
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
        assert pod.wait() == 0
        assert time.monotonic() - begin < 5


def test_sigterm_while_the_guest_still_boots_presses_the_button_until_it_listens(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        client.ask(SYNC)
        pod.process.send_signal(signal.SIGTERM)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"
    assert pod.wait() == 0


def test_sigterm_without_a_guest_ends_at_once(start: Start) -> None:
    pod = start()
    with pod.client():
        begin = time.monotonic()
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0
        assert time.monotonic() - begin < 3


def test_the_log_tells_a_life_in_a_few_lines(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0
    lines = pod.log.read_text().splitlines()
    assert any("the guest is running" in line for line in lines)
    assert any("the guest has to power off" in line for line in lines)
    assert any("the run of the domain is over" in line for line in lines)
    assert not [line for line in lines if line.startswith("libvirtd: ") or "/dev/kvm" in line]
    assert len(lines) <= 12, lines


def test_a_deaf_guest_is_destroyed_when_its_time_is_up(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        viewer.sh("kill -STOP $(pidof dd)")
        client.ask(messages.Shutdown(5.0))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "destroyed"
    assert pod.wait() == 0


def test_a_paused_guest_is_resumed_to_shut_down(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        client.ask(messages.Suspend())
        client.ask(messages.Shutdown(10.0))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown-requested"


def test_a_guest_that_powers_itself_off_ends_the_launcher_with_0(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        viewer.expect("# ")  # the shell throws away what was typed before it was there
        viewer.type("poweroff -f\n")
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "shutdown"
    assert pod.wait() == 0


def test_a_reboot_stays_in_the_same_qemu_and_on_the_same_console(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        viewer.expect("# ")  # the shell throws away what was typed before it was there
        before = pod.qemu()
        viewer.type("reboot -f\n")
        viewer.expect("GUEST-READY")
        assert pod.qemu() == before
        assert client.until(lambda status: status.reboots).reboots == 1
        viewer.expect("# ")  # by now the firmware has reset the machine once more
        assert client.ask(messages.Suspend()).reboots == 1


PANICS = bytes.fromhex("ba 05 05 b0 01 ee f4 eb fd")
"""``mov dx, 0x505; mov al, 1; out dx, al``, and halt: what a kernel's driver of pvpanic does (https://www.qemu.org/docs/master/specs/pvpanic.html)."""


def test_a_guest_that_panics_has_crashed_and_says_that_it_panicked(start: Start) -> None:
    pod = start()
    claim = pod.disks / "boot"
    claim.mkdir()
    (claim / "disk.img").write_bytes((PANICS.ljust(510, b"\0") + b"\x55\xaa").ljust(1 << 20, b"\0"))  # a boot sector, and nothing else
    subprocess.run(["chown", "-R", "107:107", claim], check=True)
    disks = [{"name": "boot", "type": "PersistentVolumeClaim", "source": {"name": "c"}}]
    machine = a_machine(firmware={}, devices={"disks": disks, "graphics": [], "interfaces": []})
    with pod.client() as client:
        client.ask(messages.Sync(machine))
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert (ending.kind, ending.panicked, ending.message) == ("crashed", True, "the guest panicked")
    assert pod.wait() == 1


def test_qemu_killed_is_a_crash_and_ends_with_1(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        os.kill(pod.qemu()[0], signal.SIGKILL)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "crashed"
    assert pod.wait() == 1


def test_libvirtd_killed_leaves_the_guest_running_and_under_control(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        qemu, libvirtd = pod.qemu(), pod.libvirtd()
        os.kill(libvirtd, signal.SIGKILL)
        assert viewer.sh("echo here") == "here"
        wait_for(lambda: alive(pod.libvirtd()) and pod.libvirtd() != libvirtd, 20, "another libvirtd")

        def suspended() -> bool:
            answer = client.call(messages.Suspend())
            return isinstance(answer, messages.Reply)

        wait_for(suspended, 20, "the new libvirtd to be connected")
        client.ask(messages.Resume())
        assert pod.qemu() == qemu
        pod.process.send_signal(signal.SIGTERM)
        assert pod.wait() == 0


def test_a_guest_that_went_off_while_libvirtd_was_away_is_noticed(start: Start) -> None:
    pod = start()
    with pod.client() as client, pod.console() as viewer:
        client.ask(SYNC)
        viewer.expect("GUEST-READY")
        viewer.expect("# ")  # the shell throws away what was typed before it was there
        os.kill(pod.libvirtd(), signal.SIGSTOP)
        viewer.type("poweroff -f\n")
        time.sleep(0.5)
        os.kill(pod.libvirtd(), signal.SIGKILL)
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind in ("shutdown", "crashed"), ending
    pod.wait()


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
        viewer.expect("GUEST-READY")
        viewer.expect("# ")  # the shell throws away what was typed before it was there
        viewer.type("poweroff -f\n")
    assert pod.wait() == 0


def test_a_domain_that_qemu_refuses_fails_the_start_with_its_words(start: Start) -> None:
    pod = start()
    with pod.client() as client:
        answer = client.call(messages.Sync(a_machine(cpu={"model": "no-such-model"})))
        assert isinstance(answer, messages.Refusal)
        assert answer.reason == "Failed"
        ending = client.until(lambda status: status.ending).ending
        assert ending is not None
        assert ending.kind == "start-failed"
        assert "no-such-model" in ending.message
    assert pod.wait() == 1
