package main

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/json"
)

var mapType = reflect.TypeOf(map[string]any{})

// decode reads whole numbers as integers, as Kubernetes reads objects.
func decode(data []byte, into *request) error {
	var raw map[string]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	into.Expression, _ = raw["expression"].(string)
	into.Variables, _ = raw["variables"].(map[string]any)
	return nil
}
