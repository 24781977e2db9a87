"""Resources over storage: the watch cache, the generic store over it, and the strategies of our resources.

``cacher`` keeps the objects of one storage prefix in memory, ``generic`` is one resource's store over it, and ``virt``
defines our kinds. Each imports only those before it. Start with ``generic.strategy``, which has the rules that a kind can
set.
"""
