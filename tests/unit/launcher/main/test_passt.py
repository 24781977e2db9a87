from __future__ import annotations

import os
from pathlib import Path

import pytest

from apiserver.apis.virt.hardware import interfaces
from launcher.domain.passt import Settings
from launcher.main.programs import passt


@pytest.mark.parametrize(
    ("tcp", "udp", "told"),
    [
        ((), (), ["--tcp-ports", "none", "--udp-ports", "none"]),
        ((22, 8080), (53,), ["--tcp-ports", "22,8080", "--udp-ports", "53"]),
    ],
    ids=["no ports", "ports of both protocols"],
)
def test_passt_listens_on_the_given_ports_only(
    tcp: tuple[int, ...], udp: tuple[int, ...], told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "passt"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    arguments = passt.command(Settings("lan", {"TCP": tcp, "UDP": udp}))
    python, options, (parent, files, started, *own) = arguments[0], arguments[1:3], arguments[4:]
    assert Path(python).name.startswith("python")
    assert options == ["-I", "-S"]
    assert Path(arguments[3]).name == "unsandboxed.py"
    assert (parent, files, started) == (str(os.getpid()), str(interfaces.PASST_FILES), str(program))
    assert own[:3] == ["--foreground", "--quiet", "--vhost-user"]
    assert own[-7:] == ["--interface", "eth0", "--no-map-gw", *told]
