"""``spec.domain``: one module per family of fields, with models and validation rules.

A family has the same name in every layer: defaults in ``apis.virt.hardware``, needs of its pod in ``controller.reconcilers.launcher_pods``,
XML in ``launcher.domain``. CONTRIBUTING.md has the steps to add a field.

Rules run on the object after defaulting. They also run if the schema found errors, so required fields may be missing.
"""
