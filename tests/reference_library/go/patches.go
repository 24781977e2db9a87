package main

import (
	"encoding/json"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

func patched(asked *request) (json.RawMessage, error) {
	switch asked.Op {
	case "merge-patch":
		return jsonpatch.MergePatch(asked.Live, asked.Patch)
	case "json-patch":
		operations, err := jsonpatch.DecodePatch(asked.Patch)
		if err != nil {
			return nil, err
		}
		return operations.Apply(asked.Live)
	case "strategic-patch", "strategic-diff":
		return strategic(asked)
	}
	return nil, fmt.Errorf("no operation %q", asked.Op)
}

func strategic(asked *request) (json.RawMessage, error) {
	kind, ok := kinds[asked.Schema]
	if !ok {
		return nil, fmt.Errorf("no schema %q", asked.Schema)
	}
	var live, patch map[string]any
	if err := kjson.Unmarshal(asked.Live, &live); err != nil {
		return nil, err
	}
	if len(asked.Patch) > 0 {
		if err := kjson.Unmarshal(asked.Patch, &patch); err != nil {
			return nil, err
		}
	}
	meta := strategicpatch.PatchMetaFromOpenAPIV3{SchemaList: kind.Schemas, Schema: kind.Schemas[asked.By]}
	if asked.Op == "strategic-diff" {
		return strategicpatch.CreateTwoWayMergePatchUsingLookupPatchMeta(asked.Live, asked.New, meta)
	}
	result, err := strategicpatch.StrategicMergeMapPatchUsingLookupPatchMeta(live, patch, meta)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// scale converts entries of an object to those of its scale subresource, or back. By is the path of replicas, with dots.
func scale(asked *request) (json.RawMessage, json.RawMessage, error) {
	var parent, entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(asked.Live, &parent); err != nil {
		return nil, nil, err
	}
	if len(asked.Entries) > 0 {
		if err := json.Unmarshal(asked.Entries, &entries); err != nil {
			return nil, nil, err
		}
	}
	mappings := managedfields.ResourcePathMappings{}
	for _, version := range asked.Versions {
		mappings[asked.Group+"/"+version] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	handler := managedfields.NewScaleHandler(parent, schema.GroupVersion{Group: asked.Group, Version: asked.Version}, mappings)
	var result []metav1.ManagedFieldsEntry
	var err error
	if asked.Op == "scale-to" {
		result, err = handler.ToSubresource()
	} else {
		result, err = handler.ToParent(entries)
	}
	if err != nil {
		return nil, nil, err
	}
	encoded, err := canonical(result)
	return nil, encoded, err
}
