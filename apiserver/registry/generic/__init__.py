"""The store of one resource over ``storage`` and its watch cache. Knows nothing of virtual machines."""
