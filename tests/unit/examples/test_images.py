from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.examples.programs import load


class Daemons:
    def __init__(self, directory: Path) -> None:
        self.images = directory / "images"
        self.state = self.images / ".served"
        self.state.mkdir(parents=True)
        (self.images / "data.img").write_bytes(bytes(512))
        self.told: dict[str, Any] = {
            "pod": {"uid": "u"},
            "user": os.geteuid(),
            "disk": {"name": "data", "options": {"image": "data.img"}, "readOnly": False, "socket": str(directory / "socket")},
        }
        self.kept = self.state / "u-data.json"
        self._module = load("plugins/images/images.py")
        self._daemons: list[Any] = []

    def start(self) -> Any:
        daemon = self._module.Daemon()
        self._daemons.append(daemon)
        return daemon

    def end(self) -> None:
        for disk in [disk for daemon in self._daemons for disk in daemon.disks.values()]:
            disk.close()
            disk.file.close()


@pytest.fixture
def daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemons]:
    monkeypatch.setenv("IMAGES", str(tmp_path / "images"))
    made = Daemons(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("broken", ["", '{"pod": {"ui', "{}", "null", '{"pod": 1}'])
def test_half_a_file_is_told_and_keeps_no_other_disk_away(daemons: Daemons, capsys: pytest.CaptureFixture[str], broken: str) -> None:
    for name in ("a-disk.json", "z-disk.json"):
        (daemons.state / name).write_text(broken)
    daemons.kept.write_text(json.dumps(daemons.told))
    daemon = daemons.start()
    daemon.restore()
    assert list(daemon.disks) == ["u-data"]
    assert sorted(line.split(":")[0] for line in capsys.readouterr().err.splitlines()) == ["a-disk.json", "z-disk.json"]


def test_served_disk_is_stored_atomically(daemons: Daemons) -> None:
    daemons.kept.write_text("of a former life")
    (daemons.state / "u-data.new").write_text("half")
    before = daemons.kept.stat().st_ino
    daemon = daemons.start()
    with daemons.kept.open() as former:
        daemon.add(daemons.told)
        assert former.read() == "of a former life"
    assert json.loads(daemons.kept.read_text()) == daemons.told
    assert daemons.kept.stat().st_ino != before
    assert list(daemons.state.iterdir()) == [daemons.kept]


def test_nothing_is_kept_of_what_is_deleted(daemons: Daemons) -> None:
    (daemons.state / "u-data.new").write_text("half")
    daemons.kept.write_text("half")
    assert daemons.start().delete(daemons.told) == {}
    assert not list(daemons.state.iterdir())
