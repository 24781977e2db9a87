"""Ownership of fields: ``metadata.managedFields`` and server-side apply, equal to Go's byte for byte.

::

    OpenAPI document ── openapi ──▶ schema.Atom          a field's kind, and how lists and maps merge
    object, object ── comparing ──▶ (touched, removed)   sets of fields
    object, applied ── merging ───▶ object               and removing takes away what its applier gave up
    entries ⇄ managedFields                              parsed and written, cached by their bytes
    manager.FieldManager                                 update (every other write) and apply

A set of fields has the form in which it is stored (``sets``): ``{"f:spec": {"f:running": {}}}``. Sets are shared, never changed in place,
and sorted, because the order is part of the bytes.

``tests/reference_library`` compares with k8s.io/apimachinery by generated histories: the object, the entries, their order and the text of every error
are Go's; where Go's result depends on the order of a hash table (which of two conflicts comes first), ours is sorted.
"""
