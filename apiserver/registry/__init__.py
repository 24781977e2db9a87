"""Resources over storage: the watch cache, the generic store, and the strategies of our resources. Start with ``generic.strategy``."""
