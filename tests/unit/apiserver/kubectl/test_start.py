from __future__ import annotations

import subprocess
import sys

LOADED = "import sys; from apiserver.kubectl import commands; print('aiohttp' in sys.modules)"


def test_the_plugin_starts_without_aiohttp() -> None:
    """Half of a console's start would be its import."""
    assert subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout == "False\n"
