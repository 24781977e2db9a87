"""``python -m launcher``: see ``launcher.main``."""

from __future__ import annotations

import os
import sys
from typing import Final

HELP: Final = """usage: virt-launcher

The first process of a virtual machine's pod: runs libvirtd and one guest, and ends with the guest. It has no flags: virt-handler tells it
what to run, through a socket in the pod. Nothing but a pod has use for it."""


def main() -> int:
    """Run virt-launcher; return its exit code."""
    if sys.argv[1:]:  # without argparse, which each pod would pay for
        asked = sys.argv[1] in {"-h", "--help"}
        print(HELP, file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    # Each pod pays for every MiB. asyncio loads OpenSSL's binding when it can, and nothing here speaks TLS; it does without when the
    # import fails.
    sys.modules["ssl"] = None  # type: ignore[assignment]  # the import system's way to say "not there"
    import asyncio  # after the line above

    from launcher.main import process

    os.umask(0o077)
    process.configure_logging()
    return asyncio.run(process.run())


if __name__ == "__main__":
    sys.exit(main())
