"""Resources over storage: the watch cache, the generic store, and the strategies of our resources.

``cacher``, ``generic`` and ``virt`` only import those before them. Start with ``generic.strategy``.
"""
