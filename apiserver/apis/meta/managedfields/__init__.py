"""Ownership of fields: ``metadata.managedFields`` and server-side apply, equal to Go's byte for byte.

::

    OpenAPI document ── openapi ──▶ schema.Atom          a field's kind, and how lists and maps merge
    object, object ── comparing ──▶ (touched, removed)   sets of fields
    object, applied ── merging ───▶ object               and removing takes away what its applier gave up
    entries ⇄ managedFields                              parsed and written, cached by their bytes
    manager.FieldManager                                 update (every other write) and apply

Sets of fields have the stored form (``sets``), and are shared, never changed in place, and sorted. Functions raise ``schema.Mismatch`` for
values that do not fit the schema.

``tests/reference_library`` compares object, entries, their order and all errors with k8s.io/apimachinery.
Where Go's result depends on a hash table's order, ours is sorted.
"""
