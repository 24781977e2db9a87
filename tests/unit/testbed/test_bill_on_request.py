from __future__ import annotations

import pytest

from tests.testbed import project_images
from tests.unit.testbed.test_bill import check


@pytest.mark.slow
@pytest.mark.timeout(600)  # without caches it builds the image
@pytest.mark.parametrize("name", project_images.ON_REQUEST)
def test_each_image_on_request_has_a_bill(name: str) -> None:
    check(name)
