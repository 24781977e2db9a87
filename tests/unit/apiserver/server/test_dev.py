from __future__ import annotations

import errno

from apiserver.client.config import ConfigError
from apiserver.server.dev import reasons


def test_each_error_of_nested_groups_is_named() -> None:
    taken = OSError(errno.EADDRINUSE, "error while attempting to bind")
    group = ExceptionGroup("", [ExceptionGroup("", [taken]), ConfigError("no such file"), PermissionError(errno.EACCES, "denied")])
    assert reasons(group, 6444) == [
        "port 6444 is in use; choose another one with --port (0: any free port)",
        "no such file",
        "[Errno 13] denied",
    ]
