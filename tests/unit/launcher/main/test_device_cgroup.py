from __future__ import annotations

from pathlib import Path

import pytest

from launcher.main.programs import device_cgroup


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5:devices:/\n0::/\n", True), ("3:cpu,devices:/a\n", True), ("0::/devices\n", False), ("1:name=systemd:/devices\n", False)],
)
def test_version_is_read_from_the_own_cgroup(tmp_path: Path, text: str, *, expected: bool) -> None:
    own = tmp_path / "cgroup"
    assert not device_cgroup.is_version_1(own)
    own.write_text(text)
    assert device_cgroup.is_version_1(own) is expected
