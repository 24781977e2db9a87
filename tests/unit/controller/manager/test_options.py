from __future__ import annotations

from datetime import timedelta

import pytest

from controller.manager import options

IMAGE = "--launcher-image=registry.example/virt-launcher:v1"


def test_each_lifetime_is_that_of_its_flag() -> None:
    given = options.parse(
        [
            IMAGE,
            "--certificate-lifetime=100h",
            "--authority-lifetime=1000h",
            "--node-certificate-lifetime=7h",
            "--authority-spread=5m",
        ]
    )
    assert given.certificates.leaf == timedelta(hours=100)
    assert given.certificates.authority == timedelta(hours=1000)
    assert given.certificates.node == timedelta(hours=7)
    assert given.certificates.spread == timedelta(minutes=5)


@pytest.mark.parametrize(
    ("mistake", "named"),
    [
        ("--workers=0", "--workers: 0 is less than 1"),
        ("--workers=x", "--workers: invalid"),
        ("--certificate-lifetime=soon", "--certificate-lifetime"),
        ("--authority-lifetime=8760h", "must be positive and at most a third"),
        ("--node-certificate-lifetime=0s", "the lifetime of a node's certificate"),
        ("--authority-spread=80000h", "the time to distribute an authority"),
        ("--acceleration=maybe", "--acceleration"),
    ],
)
def test_a_mistake_is_named_with_its_flag(mistake: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse([IMAGE, mistake])
    assert ended.value.code == 2
    assert named in capsys.readouterr().err
