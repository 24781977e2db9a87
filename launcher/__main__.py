"""``python -m launcher``: see ``launcher.main``."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run virt-launcher; return its exit code."""
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
