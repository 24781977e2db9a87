"""From a pod's uid to its processes, sockets and namespaces on this node, without trusting anything that lives inside the pod.

``places`` opens what is in the pod's run directory, ``process`` holds on to its launcher (pidfd, namespaces, root directory), and
``launcher`` is the client of ``launcher.protocol``.

The guest may have broken out into the launcher, so every file in the run directory can be replaced by a link at any moment. Paths are
therefore walked by descriptors (``openat2`` with RESOLVE_NO_SYMLINKS), and what was opened is looked at before use.
"""
