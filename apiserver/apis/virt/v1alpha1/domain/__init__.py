"""``spec.domain``: one module per family of fields, with models and validation rules.

CONTRIBUTING.md has a family's modules in other layers, and the steps to add a field.

Rules run after defaulting, also if the schema found errors. Required fields may be missing then.
"""
