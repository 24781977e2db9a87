"""OpenAPI v3 (one document per group version) and v2 (one document), from pydantic models and resource descriptions.

::

    models ──schemas──▶ components ─┐
    metatypes ──────────────────────┼─▶ version3 ─▶ version2
    descriptions ──operations─▶ paths ┘

The server's strategic merge patch reads v3 (``apiserver.apis.meta.strategic_patch.Shape``).

Types of apimachinery have our own names (``io.kubevirt.apimachinery…``): kube-apiserver renames different definitions
with one name at each merge.
"""
