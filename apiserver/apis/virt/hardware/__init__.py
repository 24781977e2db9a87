"""The hardware of ``spec.domain`` with defaults.

One module per family of fields, with the same name as in ``v1alpha1.domain``, ``launcher_pods`` and ``launcher.domain``. Lists of devices
are atomic and stored as written, without defaults: ``kubectl apply`` compares such a list as a whole, and would see each server-side
default as a change. So all readers, also virt-api's validation, use these functions. They also hold values and limits that both virt-api
and the launcher check.

All functions take ``spec.domain`` as virt-api stores it, and do not modify it.
"""
