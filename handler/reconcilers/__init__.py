"""virt-handler's decisions about its node's guests, and its side of their migrations: loops that observe, plan (pure) and apply."""
