"""``kubectl-virt``, which kubectl runs as ``kubectl virt``.

Nothing slow is imported before an interrupt ends the process as it ends any program: without a traceback.
"""

from __future__ import annotations

import os
import signal
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code. Without ``arguments`` it is the program, with all of the process for itself."""
    if arguments is None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        _open_standard_streams()
    from apiserver.kubectl import commands  # slow to import

    return commands.run(arguments)


def _open_standard_streams() -> None:
    """Open those that a caller closed: their numbers would be given to other files, and these be read and written."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
