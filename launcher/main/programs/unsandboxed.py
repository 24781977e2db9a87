"""Runs a program whose sandbox cannot be had in a pod: the calls that would make it succeed and do nothing.

A program as passt makes namespaces and mounts for itself, and ends where it may not; the seccomp profile of restricted pods refuses both.
A filter of our own, set before the program is, answers them with success instead. Of filters that refuse a call the newest has the word
(seccomp(2)), so the profile stays in force for everything else, and what the program drops besides it drops: capabilities, and all system
calls but those of its work. virt-launcher runs this file by its path, without any module of ours. The program ends with virt-launcher,
however that ends (prctl(2), PR_SET_PDEATHSIG): where virt-launcher is not the first process of its namespace, nobody else would end it.
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
"""Calls by their numbers on that machine."""

_ARCHITECTURE: Final = 0xC000003E
"""AUDIT_ARCH_X86_64"""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _SUCCEED = 0x7FFF0000, 0x00050000
"""SECCOMP_RET_ALLOW, and SECCOMP_RET_ERRNO with no error."""
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_PARENT_DEATH_SIGNAL = 1


class _Program(ctypes.Structure):
    """The argument of prctl: ``struct sock_fprog``."""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def instructions() -> list[tuple[int, int, int, int]]:
    """Return the filter: code, jump if true, jump if false, operand."""
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
    """Have this process, and what it becomes, pretend.

    Raises:
        OSError: refused, or another kind of machine.
    """
    if os.uname().machine != MACHINE:
        raise OSError(f"{os.uname().machine} is another machine than {MACHINE}")
    packed = b"".join(struct.pack("HBBI", *each) for each in instructions())
    kept = ctypes.create_string_buffer(packed, len(packed))
    program = _Program(len(packed) // 8, ctypes.addressof(kept))
    _prctl(_NO_NEW_PRIVS, 1, 0)
    _prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program))


def end_with(parent: int) -> None:
    """Have this process, and what it becomes, killed as soon as its parent ends.

    Raises:
        OSError: refused.
        SystemExit: the parent has ended already.
    """
    _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, has ended")


def _prctl(option: int, first: int, second: object) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, first, second, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def main(arguments: list[str]) -> None:
    """Become the program: ``unsandboxed.py PARENT FILES PROGRAM [ARGUMENT…]``.

    PARENT is the process that starts this one, FILES how many descriptors the program may have.
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
