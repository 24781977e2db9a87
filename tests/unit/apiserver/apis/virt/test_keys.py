from __future__ import annotations

import re
from pathlib import Path

import pytest

from apiserver.apis.virt.lifecycle import keys

HEADER = Path("/usr/include/linux/input-event-codes.h")


@pytest.mark.parametrize(("key", "code"), [("KEY_ESC", 1), ("KEY_KPDOT", 83), ("KEY_102ND", 86), ("KEY_DELETE", 111), ("KEY_COMPOSE", 127)])
def test_names_have_linuxs_codes(key: str, code: int) -> None:
    assert keys.code_of(key) == code


@pytest.mark.skipif(not HEADER.exists(), reason="linux-libc-dev is not installed")
def test_every_name_and_code_is_in_linuxs_header() -> None:
    known = dict(re.findall(r"#define\s+(KEY_\w+)\s+(\d+)", HEADER.read_text()))
    assert {name: str(code) for name, code in keys.CODES.items()} == {name: known.get(name) for name in keys.CODES}
