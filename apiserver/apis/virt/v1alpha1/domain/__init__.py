"""``spec.domain``: one module per family of fields, with models and validation rules.

CONTRIBUTING.md has a family's modules in other layers, and the steps to add a field.

Rules run on the object after defaulting. They also run if the schema found errors, so required fields may be missing.
"""
