"""Reads of a machine from its node: names shared by several processes.

virt-api asks the node's virt-handler for a JSON object at ``streams.handler_path``, and virt-handler asks virt-launcher by
``launcher.protocol``'s ``Read``.
"""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 1 << 20
"""virt-handler's answer, except a picture; virt-launcher's limit is smaller."""
SECONDS: Final = 35.0
"""Timeout of virt-api's request; virt-handler's is shorter."""
