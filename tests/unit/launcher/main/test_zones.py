from __future__ import annotations

from pathlib import Path

import pytest

from launcher.domain.values import InvalidSpecification
from launcher.main.programs import zones


def test_a_time_zone_is_one_of_the_images(tmp_path: Path) -> None:
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe/Berlin").touch()
    zones.require({}, tmp_path)
    zones.require({"clock": {"timezone": "Europe/Berlin"}}, tmp_path)
    for absent in ("Europe/Atlantis", "Europe"):
        with pytest.raises(InvalidSpecification, match=r"^clock\.timezone: "):
            zones.require({"clock": {"timezone": absent}}, tmp_path)
