"""Resources over storage: the watch cache, the generic store over it, and the strategies of our resources.

``cacher``, ``generic`` and ``virt`` only import those before them. Start with ``generic.strategy``: the rules that a kind can set.
"""
