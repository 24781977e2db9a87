from __future__ import annotations

from typing import Any

import pytest

from tests.unit.examples.programs import load

isolated = load("plugins/isolated/isolated.py")


@pytest.mark.parametrize("options", [{"segmnt": "a"}, {"segment": "A/B"}])
def test_refused_interface_is_deleted_silently(options: dict[str, str]) -> None:
    told: dict[str, Any] = {"interface": {"name": "lan", "options": options}, "machine": {"namespace": "a"}, "pod": {"uid": "u"}}
    with pytest.raises(isolated.PluginError) as refused:
        isolated.add(told, "", "")
    assert refused.value.code == 7
    assert isolated.delete(told, "", "") == {}
