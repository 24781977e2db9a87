from __future__ import annotations

import orjson
import pytest
from websockets.datastructures import Headers
from websockets.http11 import Response

from apiserver.apis.meta import errors
from apiserver.endpoints.verbs import joining

SAID = "\x1b[2J no\nstream"


@pytest.mark.parametrize(
    "body", [orjson.dumps(errors.NotFound(SAID, errors.Details("n")).to_json()), SAID.encode()], ids=["Status", "text"]
)
def test_no_terminal_obeys_why_a_stream_is_refused(body: bytes) -> None:
    found = joining._refusal(Response(404, "Not Found", Headers(), body))

    assert isinstance(found, errors.NotFound)
    assert found.message.endswith("[2J no | stream")
    assert found.message.isprintable()
    assert found.details == errors.Details()
