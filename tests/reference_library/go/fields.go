package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// registration describes the versions of one kind.
type registration struct {
	Group    string                     `json:"group"`
	Kind     string                     `json:"kind"`
	Hub      string                     `json:"hub"`
	Versions []string                   `json:"versions"`
	Schemas  map[string]*spec.Schema    `json:"schemas"`
	Empty    map[string]json.RawMessage `json:"empty"` // by version
	// Renamed says, by version, under which names of spec another version keeps what the hub calls differently.
	Renamed map[string]map[string]string `json:"renamed"`
}

// endpoint is a version's resource or one of its subresources.
type endpoint struct {
	Version     string                     `json:"version"`
	Subresource string                     `json:"subresource"`
	Ignored     map[string]json.RawMessage `json:"ignored"` // FieldsV1 by apiVersion
}

type registered struct {
	registration
	types managedfields.TypeConverter
}

type fieldManager struct {
	*managedfields.FieldManager
	of      *registered
	version schema.GroupVersion
}

var (
	kinds    = map[string]*registered{}
	managers = map[string]*fieldManager{}
)

func register(name string, described registration) error {
	types, err := managedfields.NewTypeConverter(described.Schemas, false)
	if err != nil {
		return err
	}
	kinds[name] = &registered{described, types}
	return nil
}

func managerOf(name string, at endpoint) (*fieldManager, error) {
	key, err := json.Marshal([]any{name, at})
	if err != nil {
		return nil, err
	}
	if known, ok := managers[string(key)]; ok {
		return known, nil
	}
	kind, ok := kinds[name]
	if !ok {
		return nil, fmt.Errorf("no schema %q", name)
	}
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for version, raw := range at.Ignored {
		set := &fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(raw)); err != nil {
			return nil, err
		}
		reset[fieldpath.APIVersion(version)] = set
	}
	version := schema.GroupVersion{Group: kind.Group, Version: at.Version}
	hub := schema.GroupVersion{Group: kind.Group, Version: kind.Hub}
	inner, err := managedfields.NewDefaultFieldManager(
		kind.types, kind, noDefaults{}, kind, version.WithKind(kind.Kind), hub, at.Subresource, fieldpath.NewExcludeFilterSetMap(reset),
	)
	if err != nil {
		return nil, err
	}
	managers[string(key)] = &fieldManager{inner, kind, version}
	return managers[string(key)], nil
}

func (m *fieldManager) perform(asked *request) (json.RawMessage, json.RawMessage, error) {
	live, err := m.decode(asked.Live)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := m.decode(asked.New)
	if err != nil {
		return nil, nil, err
	}
	var result runtime.Object
	if asked.Op == "update" {
		// Not UpdateNoErrors: what that swallows is worth knowing.
		result, err = m.Update(live, wanted, asked.By)
	} else {
		result, err = m.Apply(live, wanted, asked.By, asked.Force)
	}
	if err != nil {
		return nil, nil, err
	}
	if result, err = m.of.ConvertToVersion(result, m.version); err != nil {
		return nil, nil, err
	}
	object := result.(*unstructured.Unstructured)
	entries, err := canonical(object.GetManagedFields())
	if err != nil {
		return nil, nil, err
	}
	object.SetManagedFields(nil)
	encoded, err := json.Marshal(object.Object)
	return encoded, entries, err
}

// decode returns an object, that of the version's New for null.
func (m *fieldManager) decode(raw json.RawMessage) (*unstructured.Unstructured, error) {
	if len(raw) == 0 || string(raw) == "null" {
		empty, err := m.of.New(m.version.WithKind(m.of.Kind))
		if err != nil {
			return nil, err
		}
		return empty.(*unstructured.Unstructured), nil
	}
	object := &unstructured.Unstructured{}
	return object, kjson.Unmarshal(raw, &object.Object)
}

// canonical returns the entries with their sets in the order in which sets are written: unstructured objects lose it.
func canonical(entries []metav1.ManagedFieldsEntry) (json.RawMessage, error) {
	for i := range entries {
		set := fieldpath.Set{}
		if err := set.FromJSON(bytes.NewReader(entries[i].FieldsV1.GetRawBytes())); err != nil {
			return nil, err
		}
		raw, err := set.ToJSON()
		if err != nil {
			return nil, err
		}
		entries[i].FieldsV1.SetRawBytes(raw)
	}
	return json.Marshal(entries)
}

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// New is what an object is before it is created.
func (k *registered) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if raw, ok := k.Empty[kind.Version]; ok {
		if err := kjson.Unmarshal(raw, &object.Object); err != nil {
			return nil, err
		}
	}
	object.SetGroupVersionKind(kind)
	return object, nil
}

// ConvertToVersion renames what the versions call differently.
func (k *registered) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	from := in.GetObjectKind().GroupVersionKind()
	to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from})
	if !ok {
		return nil, runtime.NewNotRegisteredErrForTarget("reference", nil, target)
	}
	known := false
	for _, version := range k.Versions {
		known = known || (to.Version == version && to.Group == k.Group)
	}
	if !known {
		return nil, runtime.NewNotRegisteredErrForTarget("reference", nil, target)
	}
	if from == to {
		return in, nil
	}
	object := in.DeepCopyObject().(*unstructured.Unstructured)
	if names, ok := object.Object["spec"].(map[string]any); ok {
		for hub, here := range k.Renamed[from.Version] {
			rename(names, here, hub)
		}
		for hub, there := range k.Renamed[to.Version] {
			rename(names, hub, there)
		}
	}
	object.SetGroupVersionKind(to)
	return object, nil
}

func rename(fields map[string]any, from, to string) {
	if value, ok := fields[from]; ok {
		delete(fields, from)
		fields[to] = value
	}
}

func (k *registered) Convert(_, _, _ any) error { return fmt.Errorf("not asked for") }

func (k *registered) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
