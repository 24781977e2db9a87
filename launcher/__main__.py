"""``python -m launcher``: see ``launcher.main``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, Final, NoReturn

HELP: Final = """usage: virt-launcher

The first process of a virtual machine's pod: runs libvirtd and one guest, and ends with the guest. It has no flags: virt-handler tells it
what to run, through a socket in the pod. Nothing but a pod has use for it."""
TERMINATION_LOG: Final = "/dev/termination-log"
NOT_RUN: Final = "destroyed: the pod was asked to end before its guest ran"
"""As ``launcher.main.decisions.life.termination_message`` has it, which is not loaded by then."""


def main() -> int:
    """Run virt-launcher; return its exit code where it did not even begin."""
    if sys.argv[1:]:  # without argparse, which each pod would pay for
        asked = sys.argv[1] in {"-h", "--help"}
        print(HELP, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    _heed_sigterm()
    # Each pod pays for every MiB. asyncio loads OpenSSL's binding when it can, and nothing here speaks TLS; it does without when the
    # import fails.
    sys.modules["ssl"] = None  # type: ignore[assignment]  # the import system's way to say "not there"
    import asyncio  # after the line above

    from apiserver import logs
    from launcher.main import process

    os.umask(0o077)
    logs.configure("info")
    return asyncio.run(_to_the_end(process.run))


async def _to_the_end(run: Callable[[], Coroutine[Any, Any, int]]) -> NoReturn:
    """Run, and end: a thread that hangs (in a call of libvirt's, or in a file of a disk that does not answer) is not waited for."""
    code = 1
    try:
        code = await run()
    except Exception:  # of main: the last words of a process that ends
        import logging

        logging.getLogger(__name__).exception("virt-launcher failed")
    os._exit(code)


def _heed_sigterm() -> None:
    """End at once on SIGTERM, and on one that has come already, until the event loop takes over.

    The kernel drops signals for which a container's first process has no handler, and the kubelet sends this one once. So the image's entry
    point blocks it before Python begins, and here it is let through. Nothing was begun yet: there is nothing to end.
    """
    signal.signal(signal.SIGTERM, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    with contextlib.suppress(OSError):  # the kubelet makes it; elsewhere there is none
        log = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.write(log, NOT_RUN.encode())
    os.write(sys.stderr.fileno(), f"{NOT_RUN}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
