from __future__ import annotations

from apiserver.endpoints import discovery
from tests.reference_server.flunders import GROUP, strategies


def test_subresources_are_left_out_where_there_are_none() -> None:
    """``omitempty`` of k8s.io/api/apidiscovery/v2."""
    (group,) = discovery.aggregated(strategies())["items"]
    found = [resource for version in group["versions"] for resource in version["resources"]]
    assert (group["metadata"]["name"], len(found)) == (GROUP, 3)
    assert not any("subresources" in each for each in found)
