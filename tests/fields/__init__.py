"""Files generated from our kinds' fields: ``apis/virt/structure.json`` and ``docs/fields.md``.

``make fields`` (``python -m tests.fields``) writes both. Each family has a TOML file here for what the models lack: an example for the full
objects of ``tests/hostile.py``, and for each field its test.
"""
