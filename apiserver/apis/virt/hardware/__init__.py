"""The hardware of ``spec.domain`` with defaults, and limits that virt-api and the launcher both check.

One module per family of fields, named as in ``v1alpha1.domain``, ``launcher_pods`` and ``launcher.domain``. All readers, also virt-api's
validation, use these functions, because lists of devices are stored without defaults (``docs/decisions/api.md``).

Functions take ``spec.domain`` as stored, and do not modify it. They raise ValueError for text that is not a quantity.
"""
