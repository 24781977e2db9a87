"""The store of one resource over ``storage`` and its watch cache. Knows nothing of virtual machines.

A write goes down, which is the order to read it in: ``store`` receives it, ``guaranteed_update`` plans and commits until both are about
the same revision, ``planning`` is what becomes of the object (pure, with ``metadata`` and ``deletion``), ``admitting`` lets admission
change and refuse it, ``stored`` and ``transactions`` write it with its locks, as ``codec`` writes it. ``listing`` and ``selection`` are
reads of collections. ``strategy`` is all that a kind may say; ``admission``, ``options``, ``ownership`` and ``scaling`` are what the store
needs of others. The order is a contract: "A write goes down, from the store to its transaction".
"""
