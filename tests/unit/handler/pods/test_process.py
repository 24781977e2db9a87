from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from collections.abc import Iterator

import pytest

from handler.pods.process import Launcher, in_pod

UID = "0b4c8d5e-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods/burstable/pod{UID}/abc",
        f"12:memory:/node1/kubepods/pod{UID}/abc",
        f"0::/../../pod{UID}/abc",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-abc.scope",
    ],
    ids=["cgroupfs", "v1", "from inside another container", "systemd"],
)
def test_a_process_of_the_pod_is_known_by_its_cgroup(line: str) -> None:
    assert in_pod(f"0::/\n{line}\n", UID)


@pytest.mark.parametrize("line", ["0::/", f"0::/pod{UID}x/abc", f"0::/xpod{UID}", "0::/kubepods/podother/abc"])
def test_a_process_of_another_cgroup_is_not_in_the_pod(line: str) -> None:
    assert not in_pod(line, UID)


@pytest.fixture
def pidfd() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), max(hard, 2048)))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        low = os.pidfd_open(child.pid)
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, 1500)
        try:
            yield child, high
        finally:
            os.close(low)
            os.close(high)
            child.kill()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_launcher_end_is_seen_with_many_open_descriptors(pidfd: tuple[subprocess.Popen[bytes], int]) -> None:
    child, descriptor = pidfd
    launcher = Launcher(child.pid, descriptor, network=-1, root=-1)
    assert not launcher.has_ended

    child.kill()
    child.wait()

    assert launcher.has_ended
