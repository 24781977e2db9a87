"""From a pod's uid to its processes, sockets and namespaces on this node, without trusting anything that lives inside the pod.

``places`` opens what is in the pod's run directory, by descriptors (``opening``), and ``process`` holds on to its launcher (pidfd,
namespaces, root directory). ``launcher`` is the client of ``launcher.protocol``, and ``limits`` has its times and bounds. ``links`` keeps a
connection to each launcher that somebody holds, and the newest that it said; ``reads`` asks for the texts that are told on demand.
``hanging`` runs calls that may hang in the kernel, because they touch what is mounted in a pod.

The guest may have broken out into the launcher, so every file in the run directory can be replaced by a link at any moment. Paths are
therefore walked by descriptors (``openat2`` with RESOLVE_NO_SYMLINKS), and what was opened is looked at before use. Nothing here decides
about a guest, or asks the API server: that is :mod:`handler.reconcilers`.
"""
