"""Persistence of API objects: keys, bytes, revisions, watches. The disks of guests are volumes, not storage.

``port`` is the contract, with its promises by number; whoever stores something is written against it and nothing else.
``memory`` keeps everything in the process, ``etcd`` in etcd; ``tests/contracts/test_storage*.py`` holds both to the promises. Both are
ignorant of Kubernetes: objects, resourceVersions and selectors begin in ``apiserver.registry.generic``.
"""
