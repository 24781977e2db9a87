from __future__ import annotations

import pytest

from tests.cluster.kube import Kubectl
from tests.cluster.test_stream_rights import is_forbidden, machine

__all__ = ["machine"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("user", "verb"), [("viewer", "get"), ("reader", "create")])
@pytest.mark.parametrize("stream", ["console", "vnc", "spice", "usbredir", "portforward"])
def test_read_only_users_get_neither_console_nor_screen(machine: Kubectl, user: str, verb: str, stream: str) -> None:
    is_forbidden(machine, user, verb, stream)
