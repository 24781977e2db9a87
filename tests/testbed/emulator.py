"""The machine's QEMU (Debian 12), with a workaround for a bug that Debian 13's does not have.

QEMU before 8.2.2 loses an emulated processor's writes during a migration, because it clears dirty bits of large aligned ranges of memory
without updating the emulated TLB ("physmem: Fix migration dirty bitmap coherency with TCG memory access"). The guest's kernel then dies.
QEMU handles memory that is not a multiple of 64 pages page by page, and updates the TLB.
"""

from pathlib import Path

PROGRAM = "/usr/bin/qemu-system-x86_64"
PLACE = "/usr/bin/qemu-system-i386"
"""The emulator, while a wrapper is mounted in its place."""
MORE_BYTES = 8 << 10
"""QEMU rounds sizes of memory up to this."""
_WRAPPER = f"""#!/usr/bin/python3 -IS
import os, re, sys

UNITS = {{"": 20, "k": 10, "M": 20, "G": 30}}


def larger(size):
    number, unit = re.fullmatch(r"(?:size=)?(\\d+)([kMG]?)", size).groups()
    return f"size={{((int(number) << UNITS[unit]) + {MORE_BYTES}) >> 10}}k"


arguments = sys.argv[1:]
backend = re.compile(r'("id":"pc.ram",.*"size":)(\\d+)')
found = [each for each in arguments if backend.search(each)]
if found and "mem-path" not in found[0] and '"hugetlb":true' not in found[0]:  # of huge pages it has to be a multiple of one
    arguments = [backend.sub(lambda found: f"{{found[1]}}{{int(found[2]) + {MORE_BYTES}}}", each) for each in arguments]
    memory = arguments.index("-m") + 1
    arguments[memory] = larger(arguments[memory])
os.execv("{PLACE}", ["{PROGRAM}", *arguments])
"""


def write_wrapper(directory: Path) -> Path:
    path = directory / "emulator"
    path.write_text(_WRAPPER)
    path.chmod(0o755)
    return path
