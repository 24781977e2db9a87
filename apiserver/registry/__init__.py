"""Resources over storage: the generic store with its watch cache, and the strategies of our resources."""
