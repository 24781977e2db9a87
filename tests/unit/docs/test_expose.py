"""``kubectl expose`` in documents selects by the VM's name: a Service outlives the pod."""

from __future__ import annotations

import re
from pathlib import Path

from apiserver.apis.virt.places import names

ROOT = Path(__file__).parents[3]
_EXPOSED = re.compile(r"`kubectl expose[^`]*`|^kubectl expose .*$", re.MULTILINE)


def test_each_service_selects_the_machine_by_its_name() -> None:
    paths = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    commands = [found for path in paths for found in _EXPOSED.findall(path.read_text(encoding="utf-8")) if found != "`kubectl expose`"]

    assert len(commands) >= 2
    assert [each for each in commands if f"--selector {names.VM_NAME_LABEL}=" not in each] == []
