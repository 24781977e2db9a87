"""The fields of our kinds, and what follows from them: the shapes of ``apis/virt/structure.json`` and the page ``docs/fields.md``.

``python -m tests.fields`` (``make fields``) writes both anew. What no model says is in one TOML file for each family beside this, of the
family's name: an example for the full objects of ``tests/hostile.py``, and for each field the test that saw it.
"""
