"""Persistence of API objects: keys, bytes, revisions, watches. Guests' disks are volumes and not part of it.

``port`` is the interface, with numbered guarantees; callers use only that. ``memory`` keeps everything in the process,
``etcd`` in etcd; ``tests/contracts/test_storage*.py`` tests both. Neither depends on Kubernetes: objects, resourceVersions
and selectors are in ``apiserver.registry.generic``.
"""
