from __future__ import annotations

import resource

import pytest

from apiserver.endpoints.http.caps import Caps
from apiserver.server import options
from apiserver.server.connections import ConnectionOptions, limits, raise_descriptors


def test_default_flags_fit_the_charts_memory_limit() -> None:
    given = options.parse(["--storage=memory"])
    assert given.connections == ConnectionOptions(4096, 512, 64)
    given = options.parse(["--storage=memory", "--max-connections=10", "--max-unverified-connections-per-address=3"])
    assert given.connections == ConnectionOptions(10, 512, 3)


@pytest.mark.parametrize("flag", ["--max-connections=0", "--max-unverified-connections=-1", "--max-unverified-connections=x"])
def test_wrong_numbers_are_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options.parse(["--storage=memory", flag])
    assert flag.partition("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("descriptors", "handshakes", "unverified", "verified"),
    [
        (1 << 20, Caps(1024, 512), Caps(512, 64), Caps(4096, 4096)),
        (5632 + 512, Caps(1024, 512), Caps(512, 64), Caps(4096, 4096)),
        (5631 + 512, Caps(1023, 511), Caps(511, 63), Caps(4095, 4095)),
        (2816 + 512, Caps(512, 256), Caps(256, 32), Caps(2048, 2048)),
        (100, Caps(16, 16), Caps(16, 16), Caps(16, 16)),
    ],
)
def test_few_descriptors_make_fewer_connections(descriptors: int, handshakes: Caps, unverified: Caps, verified: Caps) -> None:
    found = limits(ConnectionOptions(), descriptors, 10.0)
    assert (found.handshakes, found.unverified, found.verified, found.seconds) == (handshakes, unverified, verified, 10.0)


def test_the_process_opens_as_many_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        assert raise_descriptors() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
