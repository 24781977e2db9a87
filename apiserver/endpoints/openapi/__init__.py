"""OpenAPI v3 (one document per group version) and v2 (one document), from pydantic models and resource descriptions.

::

    models ──schemas──▶ components ─┐
    metatypes ──────────────────────┼─▶ version3 ─▶ version2
    descriptions ──operations─▶ paths ┘

v2 is converted from v3. The server's strategic merge patch reads v3 (``apiserver.apis.meta.strategic_patch.Shape``), so
behaviour and documentation agree. kubectl chooses its way to apply by the patch types that PATCH lists. Strategic merge
patch is listed because plain ``kubectl patch`` sends nothing else, and ``kubectl apply`` otherwise fetches v2 in protobuf.
Server-side apply is listed when served.

Types of apimachinery have our own names (``io.kubevirt.apimachinery…``) because their texts are our own: kube-apiserver
renames one of two different definitions with the same name at each merge.
"""
