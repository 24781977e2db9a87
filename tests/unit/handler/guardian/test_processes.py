from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from handler.guardian import processes
from handler.guardian.killer import Killer
from handler.guardian.processes import Process

UID = "8f1d2c3b-0000-4000-8000-0123456789ab"
OTHER = "9f1d2c3b-0000-4000-8000-0123456789ab"
STATUS = "Name:\tqemu\nState:\t{state} (x)\nUid:\t{user}\t107\t107\t107\n"


def a_process(proc: Path, pid: int, cgroup: str, user: int = 107, state: str = "S") -> None:
    directory = proc / str(pid)
    directory.mkdir()
    (directory / "status").write_text(STATUS.format(user=user, state=state))
    (directory / "cgroup").write_text(cgroup)


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-abc.scope\n",
        f"0::/../../pod{UID}/abc\n",
        f"12:cpu:/node1/kubepods/burstable/pod{UID}/abc\n1:name=systemd:/x\n",
        f"0::/kubepods/pod{UID}\n",
    ],
)
def test_a_cgroup_names_its_pod(cgroup: str) -> None:
    assert processes.pod_of(cgroup) == UID


@pytest.mark.parametrize(
    "cgroup", ["0::/\n", "0::/system.slice/a.service\n", f"0::/mypod{UID}\n", f"0::/pod{UID}x/y\n", "0::/pod123/a\n", ""]
)
def test_other_cgroups_name_none(cgroup: str) -> None:
    assert processes.pod_of(cgroup) == ""


def test_guests_are_processes_of_the_launchers_user_in_pods(tmp_path: Path) -> None:
    a_process(tmp_path, 10, f"0::/pod{UID}/a\n")
    a_process(tmp_path, 11, f"0::/pod{UID}/a\n", user=0)
    a_process(tmp_path, 12, "0::/system.slice\n")
    a_process(tmp_path, 13, f"0::/pod{UID}/a\n", state="Z")
    (tmp_path / "14").mkdir()
    (tmp_path / "self").mkdir()
    assert list(processes.guests(tmp_path)) == [Process(10, UID)]


def test_only_the_named_pods_end(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as two:
        try:
            a_process(tmp_path, one.pid, f"0::/pod{UID}/a\n")
            a_process(tmp_path, two.pid, f"0::/pod{OTHER}/a\n")
            assert processes.end([UID], tmp_path) == (Process(one.pid, UID),)
            assert one.wait(10) == -signal.SIGKILL
            assert two.poll() is None
            assert {each.pid for each in processes.end(None, tmp_path)} == {one.pid, two.pid}
            assert two.wait(10) == -signal.SIGKILL
        finally:
            for each in (one, two):
                each.kill()


def test_a_protected_process_does_not_shield_others(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as one, subprocess.Popen(["sleep", "60"]) as two:
        refused: list[int] = []

        def refuse_first(descriptor: int, number: int) -> None:
            if not refused:
                refused.append(descriptor)
                raise PermissionError(1, "AppArmor")
            signal.pidfd_send_signal(descriptor, number)

        try:
            a_process(tmp_path, one.pid, f"0::/pod{UID}/a\n")
            a_process(tmp_path, two.pid, f"0::/pod{OTHER}/a\n")
            found = processes.end(None, tmp_path, send=refuse_first)
            shielded, other = (one, two) if found[0].pid == one.pid else (two, one)
            assert other.wait(10) == -signal.SIGKILL
            assert shielded.poll() is None
        finally:
            for each in (one, two):
                each.kill()


def test_a_process_with_running_threads_has_not_ended() -> None:
    status = STATUS.format(state="Z", user=107)
    assert not processes.is_of_user(f"{status}Threads:\t1\n", 107)
    assert processes.is_of_user(f"{status}Threads:\t2\n", 107)
    assert processes.is_of_user(f"{status}Threads:\t12\n", 107)


def test_a_reused_process_id_is_spared() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        processes.kill(Process(other.pid, UID), lambda _: False)
        assert other.poll() is None
        processes.kill(Process(other.pid, UID), lambda _: True)
        assert other.wait(10) == -signal.SIGKILL
    processes.kill(Process(2**22 - 1, UID), lambda _: True)
    assert os.getpid() != 2**22 - 1


def test_the_thread_ends_guests_after_the_deadline() -> None:
    now, ended = [0.0], threading.Event()
    asked: list[object] = []

    def end(pods: object) -> tuple[Process, ...]:
        asked.append(pods)
        ended.set()
        return ()

    killer = Killer(lambda: now[0], end)
    killer.look()
    killer.until = 10.0
    killer.look()
    assert asked == []
    thread = threading.Thread(target=killer.run)
    thread.start()
    try:
        now[0] = 10.0
        assert ended.wait(30)
    finally:
        killer.stop()
        thread.join()
    assert asked[0] is None


def test_an_unexpected_error_does_not_end_the_thread() -> None:
    looks, again = [0], threading.Event()

    def end(_: object) -> tuple[Process, ...]:
        looks[0] += 1
        if looks[0] == 1:
            raise ValueError("unexpected")
        again.set()
        return ()

    killer = Killer(lambda: 1.0, end)
    killer.until = 0.0
    thread = threading.Thread(target=killer.run)
    thread.start()
    try:
        assert again.wait(30)
    finally:
        killer.stop()
        thread.join()


def test_doomed_pods_end_before_the_deadline() -> None:
    there = [{UID}]
    killer = Killer(lambda: 0.0, lambda pods: tuple(Process(1, each) for each in there[0] & set(pods or ())))
    killer.until = 10.0
    killer.doom(frozenset({UID}))
    killer.look()
    assert not killer.ended.is_set()
    there[0] = set()
    killer.look()
    assert killer.ended.is_set()
    killer.doom(frozenset({OTHER}))
    assert not killer.ended.is_set()


def test_pods_doomed_during_a_look_have_not_ended() -> None:
    def end(pods: object) -> tuple[Process, ...]:
        if pods == {UID}:
            killer.doom(frozenset({OTHER}))
        return ()

    killer = Killer(lambda: 0.0, end)
    killer.doom(frozenset({UID}))
    killer.look()
    assert not killer.ended.is_set()
    killer.look()
    assert killer.ended.is_set()
