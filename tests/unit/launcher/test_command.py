from __future__ import annotations

import pytest

from launcher import __main__


@pytest.mark.parametrize(("flag", "code"), [("--help", 0), ("-h", 0), ("--what", 2)])
def test_flags_are_answered_with_what_it_is_and_start_nothing(
    flag: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["virt-launcher", flag])
    monkeypatch.setattr("launcher.main.process.run", None)

    assert __main__.main() == code

    said = capsys.readouterr()
    assert "It has no flags" in (said.err if code else said.out)
