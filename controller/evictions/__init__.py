"""Eviction reviews for launcher pods, answered by every replica of virt-controller.

- ``eviction_plan`` decides; ``places`` limits concurrent migrations.
- ``outcomes`` and ``waiting`` keep the state that no API object has.
- ``admission`` gathers the input and creates the Migration.
- ``path_secret`` authenticates kube-apiserver.
- ``webhook`` maintains the webhook configuration.
"""
