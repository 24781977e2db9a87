from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from importer import plan
from importer.failures import ImportFailed

SOURCE = {"http": {"url": "http://host/disk.img"}}


@pytest.mark.parametrize("claim", [{"directory": "/claim"}, {"device": "/dev/claim"}])
def test_an_image_goes_to_a_directory_or_to_a_device(claim: dict[str, Any]) -> None:
    found = plan.read(json.dumps({"source": SOURCE, **claim}).encode())
    assert (found.directory, found.device) in ((Path("/claim"), None), (Path(), Path("/dev/claim")))


@pytest.mark.parametrize("given", [{}, {"directory": "", "device": None}, {"directory": None}])
def test_plan_without_a_destination_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ImportFailed, match="cannot parse virt-launcher's import plan"):
        plan.read(json.dumps({"source": SOURCE, **given}).encode())


@pytest.mark.parametrize("document", [b"", b"[]", b'{"directory": "/claim"}', b'{"directory": "/claim", "source": 1}'])
def test_malformed_plans_are_reported(document: bytes) -> None:
    with pytest.raises(ImportFailed, match="cannot parse virt-launcher's import plan"):
        plan.read(document)
