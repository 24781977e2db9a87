"""``spec.domain``: a module for each family of its fields, with their models and the rules that their values keep.

A family has the same name in every layer: what it means unsaid in ``apis.virt.hardware``, what its pod needs in
``controller.reconcilers.launcher_pods``, and its XML in ``launcher.domain``. CONTRIBUTING.md has the recipe for a new field.

A rule sees the defaulted object. Of an object of wrong shape the rest is judged, too, so what the schema requires may be absent.
"""
