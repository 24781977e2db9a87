"""The store of one resource, independent of virtual machines.

In the order of a write: ``store`` receives it; ``guaranteed_update`` plans and commits until both use one revision;
``planning`` (pure, with ``metadata`` and ``deletion``) computes the object; ``admitting`` calls admission; ``stored``
and ``transactions`` write it with its locks, encoded by ``codec``. ``strategy`` has a kind's rules.
"""
