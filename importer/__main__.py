"""``python -m importer``: see ``importer``."""

from __future__ import annotations

import os
import resource
import sys
from typing import Final

from importer import importing, plan
from importer.failures import ImportFailed
from importer.reporting import Reporter

MEMORY_BYTES: Final = 1 << 30
"""Address space for Python, OpenSSL, the buffers and xz's dictionary."""


def main() -> int:
    """Import by the plan on standard input; return exit status 0 if the claim then has a disk, else 1."""
    os.umask(0o007)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return carry_out(sys.stdin.buffer.read(plan.MAX_BYTES), Reporter())


def carry_out(document: bytes, reporter: Reporter) -> int:
    """Import by a plan, without limiting this process; return the exit status."""
    try:
        importing.run(plan.read(document), reporter)
    except ImportFailed as error:
        reporter.failed(str(error))
        return 1
    except MemoryError:
        reporter.failed("reading the image needs more memory than the importer may use")
        return 1
    reporter.succeeded()
    return 0


if __name__ == "__main__":
    sys.exit(main())
