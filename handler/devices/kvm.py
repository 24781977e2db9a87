"""Run the trial guest with the ioctls of ``/dev/kvm`` and print its progress (``python -m handler.devices.kvm``).

An ioctl of a broken KVM may never return, so ``acceleration`` kills this process. Each line is one event: ``stage C 0.0012`` (seconds since
the guest's start) or ``end <reason>``. The kernel's ``Documentation/virt/kvm/api.rst`` has the ABI.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import mmap
import os
import platform
import struct
import sys
import time
from typing import Final

from handler.devices import trial

DEVICE: Final = "/dev/kvm"

_GET_API_VERSION: Final = 0xAE00
_CREATE_VM: Final = 0xAE01
_GET_VCPU_MMAP_SIZE: Final = 0xAE04
_GET_SUPPORTED_CPUID: Final = 0xC008AE05
_CREATE_VCPU: Final = 0xAE41
_SET_USER_MEMORY_REGION: Final = 0x4020AE46
_SET_TSS_ADDR: Final = 0xAE47
_RUN: Final = 0xAE80
_SET_REGS: Final = 0x4090AE82
_GET_SREGS: Final = 0x8138AE83
_SET_SREGS: Final = 0x4138AE84
_SET_CPUID2: Final = 0x4008AE90

_CPUID_ENTRIES: Final = 256
_CPUID_ENTRY_BYTES: Final = 40
_REGS_BYTES: Final = 144
_SREGS_BYTES: Final = 312

_API_VERSION: Final = 12
_IO_OUT: Final = 1


class _Exit(enum.IntEnum):
    IO = 2
    HLT = 5
    SHUTDOWN = 8
    FAIL_ENTRY = 9
    INTR = 10
    INTERNAL_ERROR = 17


_CR0: Final = 0x8005_0033  # PE, MP, ET, NE, WP, AM, PG
_CR4: Final = 0x0004_0620  # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
_EFER: Final = 0x500  # LME, LMA


def _segment(selector: int, kind: int, *, long: int) -> bytes:
    return struct.pack("<QIH10B", 0, 0xFFFFF, selector, kind, 1, 0, 1 - long, 1, long, 1, 0, 0, 0)


def long_mode(sregs: bytearray) -> None:
    """Change a struct kvm_sregs, in place, to 64-bit long mode with the trial guest's tables."""
    sregs[0:24] = _segment(trial.CODE_SELECTOR, 0xB, long=1)
    for index in range(1, 6):  # ds, es, fs, gs, ss
        sregs[index * 24 : index * 24 + 24] = _segment(trial.DATA_SELECTOR, 0x3, long=0)
    tables = 8 * 24  # after tr and ldt, which keep KVM's values
    struct.pack_into("<QH", sregs, tables, trial.GDT, trial.GDT_LIMIT)
    struct.pack_into("<QH", sregs, tables + 16, trial.IDT, trial.IDT_LIMIT)
    struct.pack_into("<5Q", sregs, tables + 32, _CR0, 0, trial.PML4, _CR4, 0)  # cr0, cr2, cr3, cr4, cr8
    struct.pack_into("<Q", sregs, tables + 72, _EFER)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _prepare_cpu(kvm: int, cpu: int) -> None:
    cpuid = bytearray(8 + _CPUID_ENTRIES * _CPUID_ENTRY_BYTES)
    struct.pack_into("<I", cpuid, 0, _CPUID_ENTRIES)
    fcntl.ioctl(kvm, _GET_SUPPORTED_CPUID, cpuid)
    fcntl.ioctl(cpu, _SET_CPUID2, cpuid)
    sregs = bytearray(_SREGS_BYTES)
    fcntl.ioctl(cpu, _GET_SREGS, sregs)
    long_mode(sregs)
    fcntl.ioctl(cpu, _SET_SREGS, sregs)
    registers = bytearray(_REGS_BYTES)
    struct.pack_into("<Q", registers, 6 * 8, trial.STACK)
    struct.pack_into("<QQ", registers, 16 * 8, trial.CODE, 0b10)  # rip, rflags
    fcntl.ioctl(cpu, _SET_REGS, registers)


def _explain(reason: int, run: mmap.mmap) -> str:
    match reason:
        case _Exit.SHUTDOWN:
            return "the guest's processor shut down (triple fault)"
        case _Exit.FAIL_ENTRY:
            return f"entering the guest failed (hardware reason {struct.unpack_from('<Q', run, 32)[0]:#x})"
        case _Exit.INTERNAL_ERROR:
            suberror, count = struct.unpack_from("<II", run, 32)
            # failed emulation: a word of flags, then length and bytes of the instruction
            code = run[49 : 49 + min(run[48], 15)].hex(" ") if suberror == 1 and count else ""
            return f"KVM internal error {suberror}" + (f" at the instruction {code}" if code else "")
        case _:
            return f"unexpected exit {reason}"


def run_guest() -> str:
    """Run the guest to its end, print each stage, and return why it ended (``done`` if it halted by itself). Raises OSError."""
    kvm = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
    if (version := fcntl.ioctl(kvm, _GET_API_VERSION)) != _API_VERSION:
        return f"KVM API version {version}"
    machine = fcntl.ioctl(kvm, _CREATE_VM, 0)
    fcntl.ioctl(machine, _SET_TSS_ADDR, 0x7FFBD000)  # Intel needs three pages outside of the guest's memory
    memory = mmap.mmap(-1, trial.MEMORY_BYTES)
    memory[:] = bytes(trial.memory())
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(machine, _SET_USER_MEMORY_REGION, struct.pack("<IIQQQ", 0, 0, 0, trial.MEMORY_BYTES, address))
    cpu = fcntl.ioctl(machine, _CREATE_VCPU, 0)
    run = mmap.mmap(cpu, fcntl.ioctl(kvm, _GET_VCPU_MMAP_SIZE))
    _prepare_cpu(kvm, cpu)
    started = time.monotonic()
    while True:
        try:
            fcntl.ioctl(cpu, _RUN)
        except InterruptedError:
            continue
        (reason,) = struct.unpack_from("<I", run, 8)
        if reason == _Exit.HLT:
            return "done"
        if reason == _Exit.INTR:
            continue
        if reason != _Exit.IO:
            return _explain(reason, run)
        direction, _size, port, _count, offset = struct.unpack_from("<BBHIQ", run, 32)
        if direction == _IO_OUT and port == trial.PORT:
            _say(f"stage {chr(run[offset])} {time.monotonic() - started:.4f}")


def main() -> int:
    """Run the trial guest, print how it ended, and return 0."""
    if platform.machine() != "x86_64":
        _say(f"end the trial guest is written for x86_64, and this is {platform.machine()}")
        return 0
    try:
        _say(f"end {run_guest()}")
    except OSError as error:
        _say(f"end {error.strerror or error} ({DEVICE})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
