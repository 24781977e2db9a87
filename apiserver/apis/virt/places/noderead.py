"""Reads of a machine from the node that it runs on: the names that virt-api, virt-handler and virt-launcher agree on.

``GET …/virtualmachines/NAME/guestinfo`` goes from virt-api to virt-handler of the machine's node, at ``streams.handler_path`` over mTLS,
and from there to virt-launcher, by ``launcher.protocol``'s ``Read``. virt-handler answers with a JSON object.
"""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 1 << 20
"""Of virt-handler's answer: virt-launcher says less."""
SECONDS: Final = 35.0
"""Time-out of virt-api's request to virt-handler, which waits less for virt-launcher."""
