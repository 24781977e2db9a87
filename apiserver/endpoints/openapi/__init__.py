"""OpenAPI v3 (one document per group version) and v2 (one document), from pydantic models and resource descriptions.

::

    models ──schemas──▶ components ─┐
    metatypes ──────────────────────┼─▶ version3 ─▶ version2
    descriptions ──operations─▶ paths ┘

The server's strategic merge patch reads v3 (``apiserver.apis.meta.strategic_patch.Shape``). kubectl applies by the
patch types of PATCH: strategic merge patch, because plain ``kubectl patch`` sends nothing else and ``kubectl apply``
otherwise fetches v2 in protobuf, and server-side apply.

Types of apimachinery have our own names (``io.kubevirt.apimachinery…``): kube-apiserver renames different definitions
with one name at each merge.
"""
