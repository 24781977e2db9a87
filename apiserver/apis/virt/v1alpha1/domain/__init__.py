"""``spec.domain``: one module per family of fields, with models and validation rules.

Each ``validate`` returns errors. It runs after defaulting, also if the schema found errors; required fields may be missing then.
"""
