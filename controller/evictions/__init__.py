"""Evictions of launcher pods, which kube-apiserver asks virt-controller about: every replica, not only the leader.

``eviction_plan`` decides, with ``places`` for who is next; ``outcomes`` and ``waiting`` remember what that needs beside the objects there
are; ``admission`` gathers all of it and makes the Migration, ``path_secret`` knows who may ask, and ``webhook``
keeps kube-apiserver's configuration. ``controller.serving.evictions`` speaks HTTP.
"""
