from __future__ import annotations

import pytest

from handler import options
from handler.streams.limits import Limits

NODE = ["--node-name=node1", "--pod-ip=10.0.0.1"]


def test_streams_are_bounded_unless_it_is_said_otherwise() -> None:
    limits = options.parse(NODE).stream_limits
    assert limits == Limits()
    assert 0 < limits.max_streams_per_machine_and_user < limits.max_streams_per_machine < limits.max_streams
    given = ["--max-streams=3", "--max-streams-per-machine=2", "--max-streams-per-machine-and-user=0"]
    assert options.parse([*NODE, *given]).stream_limits == Limits(3, 2, 0)


def test_a_negative_number_of_streams_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse([*NODE, "--max-streams=-1"])
    assert "-1 is negative" in capsys.readouterr().err
