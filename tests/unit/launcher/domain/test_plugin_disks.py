from __future__ import annotations

from typing import Any

import pytest

from launcher.domain import disk_origins, migratability
from launcher.domain.values import InvalidSpecification


def with_disk(**source: Any) -> dict[str, Any]:
    return {"devices": {"disks": [{"name": "data", "type": "Plugin", "source": {"plugin": "images", **source}}]}}


def served(**answer: Any) -> dict[str, Any]:
    return with_disk(served={"protocol": "nbd", "size": 512, "export": "", "liveMigration": False, **answer})


@pytest.mark.parametrize("given", [with_disk(), with_disk(options={"a": "b"}), served(protocol="qcow2"), served(export="a b")], ids=str)
def test_a_disk_that_no_plugin_has_set_up_is_refused(given: dict[str, Any]) -> None:
    assert len(disk_origins.origins(served())) == 1
    with pytest.raises(InvalidSpecification, match=r"^devices\.disks\[0\]\.source: its plugin has not set it up"):
        disk_origins.origins(given)


def test_plugin_disk_prevents_migration_unless_declared_movable() -> None:
    said = migratability.not_migratable(served())
    assert said == "the disk 'data' is set up only on its node, by plugin 'images'"
    assert migratability.not_migratable(served(liveMigration=True)) == ""
