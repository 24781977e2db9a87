"""Files generated from our kinds' fields: ``apis/virt/structure.json`` and ``docs/fields.md``.

``make fields`` (``python -m tests.fields``) writes both. A TOML file per family has what the models lack: an example for the full objects
of ``tests/hostile.py``, and each field's test.
"""
