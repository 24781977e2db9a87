"""``dig`` for objects of our kinds: mypy checks their fields (``typed``).

All are :func:`apiserver.apis.meta.objects.dig`; mypy's plugin (``tests/fields/mypy_plugin.py``) tells them apart.
"""

from __future__ import annotations

from typing import Final

from apiserver.apis.meta.objects import dig

dig_vm: Final = dig
dig_migration: Final = dig
dig_policy: Final = dig
dig_replica_set: Final = dig
