"""Resources over storage: the watch cache, the generic store over it, and the strategies of our resources."""
