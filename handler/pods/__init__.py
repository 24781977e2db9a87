"""Finds a pod's processes, sockets and namespaces on this node by its uid, without trusting anything in the pod.

``places`` opens files in the pod's run directory by descriptors (``opening``), and ``process`` holds the launcher (pidfd, namespaces, root
directory). ``launcher`` is the client of ``launcher.protocol``, with the timeouts and limits of ``limits``. ``links`` keeps the connections
to launchers and their newest status; ``reads`` requests texts on demand. ``hanging`` runs calls that may hang in the kernel, because they
touch a pod's mounts.

A compromised launcher can replace each file in the run directory by a link at any moment. So paths are resolved by descriptors (``openat2``
with RESOLVE_NO_SYMLINKS), and opened files are checked before use. This package makes no decisions about guests and does not use the API
server: that is :mod:`handler.reconcilers`.
"""
