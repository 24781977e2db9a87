from __future__ import annotations

import pytest

from handler.pods.process import in_pod

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
def test_a_stranger_is_not(line: str) -> None:
    assert not in_pod(line, UID)
