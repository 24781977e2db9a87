"""Finds a pod's processes, sockets and namespaces on this node by its uid, without trusting anything in the pod.

A compromised launcher can replace each file in the run directory by a link at any moment. So paths are resolved by descriptors (``openat2``
with RESOLVE_NO_SYMLINKS), and opened files are checked before use.
"""
