"""Placement of a machine's pod, with structures of a Pod's spec."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from apiserver.apis.meta.schema import ATOMIC, ATOMIC_MAP, Int32, Int64, Model

SelectorOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


class LabelSelectorRequirement(Model):
    """A condition on one label."""

    key: str = Field(description="The label's key.")
    operator: SelectorOperator = Field(description="Comparison of the label with the values.")
    values: list[str] | None = Field(
        None, description="Values that In and NotIn compare with; empty for Exists and DoesNotExist.", json_schema_extra=ATOMIC
    )


class LabelSelector(Model):
    """Selects objects by labels. All conditions must hold; without conditions it selects everything."""

    match_labels: dict[str, str] | None = Field(None, description="Labels that an object must have with exactly these values.")
    match_expressions: list[LabelSelectorRequirement] | None = Field(
        None, description="Further conditions on labels.", json_schema_extra=ATOMIC
    )


class NodeSelectorRequirement(Model):
    """A condition on one label or field of a node."""

    key: str = Field(description="The label's key, or the field's path.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(description="Comparison with the values.")
    values: list[str] | None = Field(
        None,
        description="Values to compare with: any number for In and NotIn, one integer for Gt and Lt, none for the others.",
        json_schema_extra=ATOMIC,
    )


class NodeSelectorTerm(Model):
    """Conditions on a node, which all must hold."""

    match_expressions: list[NodeSelectorRequirement] | None = Field(
        None, description="Conditions on the node's labels.", json_schema_extra=ATOMIC
    )
    match_fields: list[NodeSelectorRequirement] | None = Field(
        None, description="Conditions on the node's fields, such as metadata.name.", json_schema_extra=ATOMIC
    )


class NodeSelector(Model):
    """Selects nodes that match one of the terms."""

    node_selector_terms: list[NodeSelectorTerm] = Field(
        description="Alternatives: a node must match one of them.", json_schema_extra=ATOMIC
    )


class PreferredSchedulingTerm(Model):
    """A preference for some nodes."""

    weight: Int32 = Field(description="Strength of the preference: 1 to 100.")
    preference: NodeSelectorTerm = Field(description="The preferred nodes.")


class NodeAffinity(Model):
    """Required and preferred nodes of a virtual machine."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = Field(
        None, description="The pod is scheduled only to selected nodes.", json_schema_extra=ATOMIC_MAP
    )
    preferred_during_scheduling_ignored_during_execution: list[PreferredSchedulingTerm] | None = Field(
        None, description="Possible nodes with the largest sum of weights are preferred.", json_schema_extra=ATOMIC
    )


class PodAffinityTerm(Model):
    """Selects pods to be close to, or apart from."""

    label_selector: LabelSelector | None = Field(None, description="The pods, by their labels.", json_schema_extra=ATOMIC_MAP)
    namespaces: list[str] | None = Field(None, description="The pods' namespaces; this object's own if unset.", json_schema_extra=ATOMIC)
    namespace_selector: LabelSelector | None = Field(
        None, description="The pods' namespaces, by labels; an empty selector means all of them.", json_schema_extra=ATOMIC_MAP
    )
    topology_key: str = Field(description="Node label that defines places, one for each value, such as kubernetes.io/hostname.")
    match_label_keys: list[str] | None = Field(
        None, description="Labels of the new pod; their values are added to the selector.", json_schema_extra=ATOMIC
    )
    mismatch_label_keys: list[str] | None = Field(
        None, description="Labels of the new pod; the selector excludes their values.", json_schema_extra=ATOMIC
    )


class WeightedPodAffinityTerm(Model):
    """A preference to be close to, or apart from, pods."""

    weight: Int32 = Field(description="Strength of the preference: 1 to 100.")
    pod_affinity_term: PodAffinityTerm = Field(description="The pods, and how they define places.")


class PodAffinity(Model):
    """Pods to run close to."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = Field(
        None, description="The pod is scheduled only to places with such a pod.", json_schema_extra=ATOMIC
    )
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = Field(
        None, description="Places with such pods are preferred.", json_schema_extra=ATOMIC
    )


class PodAntiAffinity(Model):
    """Pods to run apart from."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = Field(
        None, description="The pod is never scheduled to places with such a pod.", json_schema_extra=ATOMIC
    )
    preferred_during_scheduling_ignored_during_execution: list[WeightedPodAffinityTerm] | None = Field(
        None, description="Places without such pods are preferred.", json_schema_extra=ATOMIC
    )


class Affinity(Model):
    """Affinity to nodes and pods, and anti-affinity to pods."""

    node_affinity: NodeAffinity | None = Field(None, description="Affinity to nodes.")
    pod_affinity: PodAffinity | None = Field(None, description="Affinity to pods.")
    pod_anti_affinity: PodAntiAffinity | None = Field(None, description="Anti-affinity to pods.")


class Toleration(Model):
    """A taint of nodes that the virtual machine tolerates."""

    key: str | None = Field(None, description="The taint's key; unset, with Exists, tolerates every taint.")
    operator: Literal["Exists", "Equal", "Gt", "Lt"] | None = Field(
        None,
        description="Comparison of the value; Equal if unset. Gt and Lt are rejected, because they need a feature gate.",
    )
    value: str | None = Field(None, description="The taint's value; unset for Exists.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="The taint's effect; unset tolerates all effects."
    )
    toleration_seconds: Int64 | None = Field(None, description="How long a NoExecute taint is tolerated; forever if unset.")


class TopologySpreadConstraint(Model):
    """How evenly matching pods are spread over a topology's domains."""

    max_skew: Int32 = Field(description="Largest allowed difference between the numbers of pods in two places; at least 1.")
    topology_key: str = Field(description="Node label that defines places, one for each value.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = Field(
        description="DoNotSchedule: the pod waits. ScheduleAnyway: places with fewer pods are preferred."
    )
    label_selector: LabelSelector | None = Field(None, description="The pods to count.", json_schema_extra=ATOMIC_MAP)
    min_domains: Int32 | None = Field(None, description="Minimum number of places, with DoNotSchedule.")
    node_affinity_policy: Literal["Honor", "Ignore"] | None = Field(
        None,
        description="Honor excludes nodes that nodeSelector and affinity exclude; Ignore counts them as places. Honor if unset.",
    )
    node_taints_policy: Literal["Honor", "Ignore"] | None = Field(
        None,
        description="Honor excludes nodes with taints that are not tolerated; Ignore counts them as places. Ignore if unset.",
    )
    match_label_keys: list[str] | None = Field(
        None, description="Labels of the new pod; their values are added to the selector.", json_schema_extra=ATOMIC
    )
