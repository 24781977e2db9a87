"""apimachinery in miniature: what all kinds of the Kubernetes API have in common. No I/O, and nothing of ours is imported.

To be read first: ``objects`` (plain JSON objects, and how to get at their members), ``resources`` (how a client names a kind), ``errors``
(a class for each reason of ``metav1.Status``; client and server raise the same ones), and ``validation`` (field errors, all in one answer).

Then by need. Values: ``names``, ``quantity``, ``times``, ``versions``, ``users``, ``labels`` and ``fields`` (selectors). Shapes:
``structure`` checks JSON without pydantic, ``schema`` and ``decoding`` are for the pydantic models that virt-api serves, ``objectmeta`` has
the rules of ``metadata``. Changes: ``json_patch``, ``merge_patch``, ``strategic_patch``, and ``managedfields`` for server-side apply.
Beside these ``flags`` (values of command lines), ``lines`` (text of others, made fit for logs) and ``backoff``.

Error texts are apimachinery's. Processes other than virt-api load neither ``schema`` nor ``decoding``.
"""
