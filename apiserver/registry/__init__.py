"""Resources over storage: the watch cache, the generic store over it, and the strategies of our resources.

``cacher`` keeps the objects of one prefix of the storage in memory, ``generic`` is the store of one resource over it, and ``virt`` says
what is special about our kinds. Each knows those before it alone, and ``generic`` reads its kind's rules from ``generic.strategy``, which
is the file to begin with.
"""
