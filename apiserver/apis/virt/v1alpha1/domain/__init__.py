"""``spec.domain``: one module per family of fields, with models and validation rules.

Rules run after defaulting, also if the schema found errors. Required fields may be missing then.
"""
