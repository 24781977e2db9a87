from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path


def test_taken_port_is_named_without_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "apiserver.server.dev", f"--directory={tmp_path}", f"--port={port}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"\ncannot start the API server: port {port} is in use; choose another one with --port" in done.stderr
    assert "Traceback" not in done.stderr
