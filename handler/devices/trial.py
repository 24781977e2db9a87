"""The trial guest: a program in 2 MiB of memory that reports each stage of what a kernel does first.

On nested machines, an instruction may fail, or everything is emulated a thousand times too slowly. The program executes instructions that
are known to fail (:data:`STAGES`), checks their effects, and counts down a loop. Processors without CX16 or XSAVE (before 2011) fail as
well.

Each stage is one byte written to port :data:`PORT`; :data:`FAILED`: an instruction had a wrong effect.
"""

from __future__ import annotations

import struct
from typing import Final

MEMORY_BYTES: Final = 2 << 20
PORT: Final = 0x77
STAGES: Final = {
    "C": "lock cmpxchg16b",
    "P": "a change of the page tables' root",
    "I": "an exception through the IDT (int3)",
    "X": "xsave and xrstor",
    "L": "a loop of forty million instructions",
}
"""What each reported byte proves, in order."""
FAILED: Final = "!"

PML4: Final = 0x1000
_PDPT: Final = 0x2000
_DIRECTORY: Final = 0x3000
GDT: Final = 0x4000
GDT_LIMIT: Final = 3 * 8 - 1
IDT: Final = 0x5000
IDT_LIMIT: Final = 256 * 16 - 1
CODE: Final = 0x6000
_DATA: Final = 0x7000
STACK: Final = 0xA000
CODE_SELECTOR: Final = 0x08
DATA_SELECTOR: Final = 0x10

_PROGRAM: Final = (
    ("48 c7 c7 00 70 00 00", "mov rdi, _DATA"),
    ("48 8b 07", "mov rax, [rdi]"),
    ("48 8b 57 08", "mov rdx, [rdi+8]"),
    ("48 8b 5f 10", "mov rbx, [rdi+16]"),
    ("48 8b 4f 18", "mov rcx, [rdi+24]"),
    ("f0 48 0f c7 0f", "lock cmpxchg16b [rdi]"),
    ("75 69", "jnz failed"),
    ("48 39 1f", "cmp [rdi], rbx"),
    ("75 64", "jne failed"),
    ("48 39 4f 08", "cmp [rdi+8], rcx"),
    ("75 5e", "jne failed"),
    ("b0 43", "mov al, 'C'"),
    ("e6 77", "out PORT, al"),
    ("0f 20 d8", "mov rax, cr3"),
    ("0f 22 d8", "mov cr3, rax"),
    ("0f 01 3f", "invlpg [rdi]"),
    ("b0 50", "mov al, 'P'"),
    ("e6 77", "out PORT, al"),
    ("cc", "int3"),
    ("48 83 7f 20 01", "cmp qword ptr [rdi+32], 1"),
    ("75 45", "jne failed"),
    ("b0 49", "mov al, 'I'"),
    ("e6 77", "out PORT, al"),
    ("31 c9", "xor ecx, ecx"),
    ("31 d2", "xor edx, edx"),
    ("b8 03 00 00 00", "mov eax, 3  (x87 and SSE)"),
    ("0f 01 d1", "xsetbv"),
    ("f3 0f 7e 47 10", "movq xmm0, [rdi+16]"),
    ("48 0f ae a7 00 01 00 00", "xsave64 [rdi+256]"),
    ("0f 57 c0", "xorps xmm0, xmm0"),
    ("48 0f ae af 00 01 00 00", "xrstor64 [rdi+256]"),
    ("66 48 0f 7e c0", "movq rax, xmm0"),
    ("48 3b 47 10", "cmp rax, [rdi+16]"),
    ("75 12", "jne failed"),
    ("b0 58", "mov al, 'X'"),
    ("e6 77", "out PORT, al"),
    ("b9 00 2d 31 01", "mov ecx, 20000000"),
    ("ff c9", "loop: dec ecx"),
    ("75 fc", "jnz loop"),
    ("b0 4c", "mov al, 'L'"),
    ("e6 77", "out PORT, al"),
    ("f4", "hlt"),
    ("b0 21", "failed: mov al, '!'"),
    ("e6 77", "out PORT, al"),
    ("f4", "hlt"),
)
_BREAKPOINT_HANDLER: Final = (
    ("48 ff 47 20", "inc qword ptr [rdi+32]"),
    ("48 cf", "iretq"),
)


def _assembled(listing: tuple[tuple[str, str], ...]) -> bytes:
    return b"".join(bytes.fromhex(code) for code, _ in listing)


def _gate(address: int) -> bytes:
    return struct.pack("<HHBBHII", address & 0xFFFF, CODE_SELECTOR, 0, 0x8E, address >> 16 & 0xFFFF, address >> 32, 0)


def memory() -> bytearray:
    """Return the guest's memory: identity-mapped page tables, descriptors, the program and its data."""
    image = bytearray(MEMORY_BYTES)

    def place(address: int, data: bytes) -> None:
        image[address : address + len(data)] = data

    place(PML4, struct.pack("<Q", _PDPT | 0b11))  # present, writable
    place(_PDPT, struct.pack("<Q", _DIRECTORY | 0b11))
    place(_DIRECTORY, struct.pack("<Q", 0b1000_0011))  # one page of 2 MiB
    place(GDT, struct.pack("<QQQ", 0, 0x00AF_9B00_0000_FFFF, 0x00CF_9300_0000_FFFF))  # null, 64-bit code, data
    program = _assembled(_PROGRAM)
    handler = CODE + len(program)
    place(CODE, program + _assembled(_BREAKPOINT_HANDLER))
    place(IDT + 3 * 16, _gate(handler))
    place(_DATA, struct.pack("<QQQQ", 0x1122334455667788, 0x99AABBCCDDEEFF00, 0x0123456789ABCDEF, 0xFEDCBA9876543210))
    return image
