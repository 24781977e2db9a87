"""A TPM from a guest's shell: commands from "Trusted Platform Module Library", parts 1 and 3 (version 1.59)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

WORD: Final = b"remember"
_OWNER: Final = "40000001"
_INDEX: Final = "01500001"
_NO_SECRET: Final = "00000009 40000009 0000 01 0000"
"""An authorization area with one session and an empty password (part 1, 19.4)."""
_DEFINE: Final = f"0000012a {_OWNER} {_NO_SECRET} 0000 000e {_INDEX} 000b 02060006 0000 0008"
"""TPM2_NV_DefineSpace: 8 bytes that the owner may write and read (part 3, 31.3)."""
_WRITE: Final = f"00000137 {_OWNER} {_INDEX} {_NO_SECRET} 0008 {WORD.hex()} 0000"
_READ: Final = f"0000014e {_OWNER} {_INDEX} {_NO_SECRET} 0008 0000"


def write_word(shell: Callable[[str], str]) -> None:
    for command in (_DEFINE, _WRITE):
        answer = _ask(shell, command)
        assert answer[6:10] == bytes(4), f"the TPM refuses: {answer.hex()}"


def has_word(shell: Callable[[str], str]) -> bool:
    return WORD in _ask(shell, _READ)


def _ask(shell: Callable[[str], str], command: str) -> bytes:
    rest = bytes.fromhex(command)
    octets = "".join(f"\\x{each:02x}" for each in b"\x80\x02" + (len(rest) + 6).to_bytes(4, "big") + rest)
    said = shell(f"exec 3<>/dev/tpm0; printf '{octets}' >/tmp/c; cat /tmp/c >&3; od -An -v -tx1 <&3; exec 3<&-")
    return bytes.fromhex(" ".join(re.findall(r"^ ?[0-9a-f]{2}(?: [0-9a-f]{2})* ?$", said.replace("\r", ""), re.MULTILINE)))
