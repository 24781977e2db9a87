"""The fields of our kinds, and files generated from them: ``apis/virt/structure.json`` and ``docs/fields.md``.

``python -m tests.fields`` (``make fields``) writes both. Each family has a TOML file here for what the models lack: an example for the full
objects of ``tests/hostile.py``, and for each field its test.
"""
