"""The store of one resource over ``storage`` and its watch cache, independent of virtual machines.

Read it in the order of a write: ``store`` receives it; ``guaranteed_update`` plans and commits until both use the same
revision; ``planning`` (pure, with ``metadata`` and ``deletion``) computes the new object; ``admitting`` calls admission;
``stored`` and ``transactions`` write it with its locks, encoded by ``codec``. ``listing`` and ``selection`` read
collections. ``strategy`` has the rules of a kind; ``admission``, ``options``, ``ownership`` and ``scaling`` are interfaces
to others. The import contract "A write goes down, from the store to its transaction" enforces the order.
"""
