from __future__ import annotations

import base64

import pytest

from apiserver.kubectl import screenshot
from apiserver.kubectl.messages import Failure
from tests.pictures import png


def test_picture_is_decoded_if_it_is_one() -> None:
    assert screenshot.decoded(base64.b64encode(png(2, 1)).decode(), "x") == png(2, 1)
    for wrong in ("", "%%%", base64.b64encode(b"GIF89a").decode()):
        with pytest.raises(Failure, match="cannot look: the answer is no picture"):
            screenshot.decoded(wrong, "look")
