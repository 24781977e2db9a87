"""Runs a program without its own sandbox: the system calls for it do nothing and report success (docs/decisions/networks.md).

If several filters reject a call, the newest decides the result (seccomp(2)), so the pod's profile still applies to all other calls.
The program always ends with virt-launcher (prctl(2), PR_SET_PDEATHSIG), even if that is not the first process of its namespace.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from typing import Final

MACHINE: Final = "x86_64"
PRETENDED: Final = {"pivot_root": 155, "mount": 165, "umount2": 166, "unshare": 272}
"""System call numbers of that architecture."""

_ARCHITECTURE: Final = 0xC000003E
"""AUDIT_ARCH_X86_64"""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO without an error."""
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_PARENT_DEATH_SIGNAL = 1


class _Program(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def instructions() -> list[tuple[int, int, int, int]]:
    """Return the seccomp filter's BPF instructions: code, jump if true, jump if false, operand."""
    count = len(PRETENDED)
    compared = ((_EQUAL, count - position, 0, number) for position, number in enumerate(PRETENDED.values()))
    return [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 0, count + 1, _ARCHITECTURE),
        (_LOAD, 0, 0, 0),
        *compared,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _SUCCEED),
    ]


def pretend() -> None:
    """Have the system calls ``PRETENDED`` of this process, and of programs that it runs, do nothing and report success.

    This is for good. Raises OSError, also on another architecture.
    """
    if os.uname().machine != MACHINE:
        raise OSError(f"{os.uname().machine} is not supported, only {MACHINE}")
    packed = b"".join(struct.pack("HBBI", *each) for each in instructions())
    kept = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(packed) // 8, ctypes.addressof(kept))
    _prctl(_NO_NEW_PRIVS, 1, 0)
    _prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program))


def end_with(parent: int) -> None:
    """Have the kernel kill this process and its program when the parent ends; exit if it has. Raises OSError."""
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, has ended")


def _prctl(option: int, first: int, second: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, first, second, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def main(arguments: list[str]) -> None:
    """Become the program: ``unsandboxed.py PARENT FILES PROGRAM [ARGUMENT…]``.

    PARENT is the pid of the starting process, with which the program ends; FILES the most descriptors of the program. Raises OSError.
    """
    end_with(int(arguments[0]))
    most = int(arguments[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    pretend()
    os.execv(arguments[2], arguments[2:])  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main(sys.argv[1:])
