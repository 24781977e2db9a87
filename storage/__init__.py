"""Persistence of API objects: keys, bytes, revisions, watches; not guests' disks.

``port`` is the interface, with numbered guarantees; callers use only that. ``memory`` keeps everything in the process,
``etcd`` in etcd; ``tests/contracts/test_storage*.py`` tests both. Objects, resourceVersions and selectors are in
``apiserver.registry.generic``.
"""
