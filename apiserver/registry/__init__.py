"""Resources over storage: the watch cache, the generic store, and our resources' strategies. Start with ``generic.strategy``."""
