"""Reads of a machine from its node: names shared by virt-api, virt-handler and virt-launcher.

``GET …/virtualmachines/NAME/guestinfo`` goes from virt-api to virt-handler of the machine's node, at ``streams.handler_path`` over mTLS,
and from there to virt-launcher as ``launcher.protocol``'s ``Read``. virt-handler answers with a JSON object.
"""

from __future__ import annotations

from typing import Final

MAX_BYTES: Final = 1 << 20
"""Maximum bytes of virt-handler's answer, except a picture; virt-launcher's limit is smaller."""
SECONDS: Final = 35.0
"""Timeout of virt-api's request; virt-handler's own timeout is shorter."""
