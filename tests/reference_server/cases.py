from __future__ import annotations

from typing import Final

from tests.reference_server import corners, rows, surface

CASES: Final = (*rows.CASES, *corners.CORNERS, *surface.SURFACE)
