"""Persistence of API objects: keys, bytes, revisions, watches; not guests' disks.

``port`` is the interface, with numbered guarantees. ``memory`` keeps everything in the process, ``etcd`` in etcd.
"""
