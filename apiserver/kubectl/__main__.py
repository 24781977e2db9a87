"""``kubectl-virt``, which kubectl runs as ``kubectl virt``.

Signals are set up before slow imports, so Ctrl-C shows no traceback.
"""

from __future__ import annotations

import os
import signal
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code. ``arguments`` None: the process' own; then also set up its signals and standard streams."""
    if arguments is None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        _open_standard_streams()
    from apiserver.kubectl import commands  # slow to import

    return commands.run(arguments)


def _open_standard_streams() -> None:
    """Open closed standard streams, because other files would get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
