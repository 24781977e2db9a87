"""OpenAPI: v3 (one document a group version) and v2 (one document), made from pydantic models and descriptions of resources.

::

    models ──schemas──▶ components ─┐
    metatypes ──────────────────────┼─▶ version3 ─▶ version2
    descriptions ──operations─▶ paths ┘

The v3 document is the source: the v2 document is converted from it, and the server's own strategic merge patch reads it
(``apiserver.apis.meta.strategic_patch.Shape``), so that what is published is what is done. kubectl decides by it how to apply: PATCH lists
the patch types that are served, strategic merge patch among them, because plain ``kubectl patch`` sends nothing else and ``kubectl apply``
otherwise fetches the v2 document in protobuf. Server-side apply is listed when it is served.

The types of apimachinery carry our own names (``io.kubevirt.apimachinery…``): their texts are our own, and two different definitions of
one name would make kube-apiserver rename one of them each time it merges.
"""
