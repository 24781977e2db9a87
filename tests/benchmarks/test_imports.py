from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import imports
from benchmarks.gauges import MIB
from benchmarks.imports import FORMATS, file_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_served_formats_contain_the_same_image(tmp_path: Path) -> None:
    imports.write_images(tmp_path, list(FORMATS), 2)
    assert {path.name for path in tmp_path.iterdir()} == {file_of(each) for each in FORMATS}
    raw = (tmp_path / file_of("raw")).read_bytes()
    assert len(raw) == 2 * MIB
    assert all(any(raw[at : at + imports.BLOCK]) for at in range(0, len(raw), imports.BLOCK))
    packed = tmp_path / file_of("raw, gzip")
    assert gzip.decompress(packed.read_bytes()) == raw
    assert 0.4 < packed.stat().st_size / len(raw) < 0.7
    (tmp_path / "unpacked").write_bytes(gzip.decompress((tmp_path / file_of("qcow2, gzip")).read_bytes()))
    for name in (file_of("qcow2"), "unpacked"):
        told = subprocess.run(["qemu-img", "info", "--output=json", str(tmp_path / name)], check=True, capture_output=True).stdout
        assert {key: json.loads(told)[key] for key in ("format", "virtual-size")} == {"format": "qcow2", "virtual-size": 2 * MIB}
        subprocess.run(
            ["qemu-img", "compare", "-f", "qcow2", "-F", "raw", str(tmp_path / name), str(tmp_path / file_of("raw"))],
            check=True,
            capture_output=True,
        )
