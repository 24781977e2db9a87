// Answers, one JSON line for each line it reads, what Kubernetes' own libraries make of an object:
// field managers of k8s.io/apimachinery, and its patches. The lines are described in tests/reference_library/program.py.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"
)

type request struct {
	Op      string          `json:"op"`
	Schema  string          `json:"schema"`
	Live    json.RawMessage `json:"live"`
	New     json.RawMessage `json:"new"`
	Patch   json.RawMessage `json:"patch"`
	Force   bool            `json:"force"`
	By      string          `json:"by"`
	Entries json.RawMessage `json:"entries"`
	Text    string          `json:"text"`
	registration
	endpoint
}

type answer struct {
	Object        json.RawMessage `json:"object,omitempty"`
	ManagedFields json.RawMessage `json:"managedFields,omitempty"`
	Error         string          `json:"error,omitempty"`
	Status        any             `json:"status,omitempty"`
	// The seconds between which the work was done: it stamps entries with the present time.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		encoded, err := json.Marshal(answerTo(line))
		if err != nil {
			fmt.Fprintln(os.Stderr, "encode an answer:", err)
			os.Exit(1)
		}
		out.Write(encoded)
		out.WriteByte('\n')
		out.Flush()
	}
}

func answerTo(line []byte) (result answer) {
	result.Before = time.Now().Unix()
	defer func() {
		if problem := recover(); problem != nil {
			result.Error = fmt.Sprintf("panic: %v", problem)
		}
		result.After = time.Now().Unix()
	}()
	var asked request
	err := json.Unmarshal(line, &asked)
	if err == nil {
		result.Object, result.ManagedFields, err = perform(&asked)
	}
	if err != nil {
		result.Error = err.Error()
		var status apierrors.APIStatus
		if errors.As(err, &status) {
			result.Status = status.Status()
		}
	}
	return result
}

func perform(asked *request) (json.RawMessage, json.RawMessage, error) {
	switch asked.Op {
	case "register":
		return nil, nil, register(asked.Schema, asked.registration)
	case "update", "apply":
		manager, err := managerOf(asked.Schema, asked.endpoint)
		if err != nil {
			return nil, nil, err
		}
		return manager.perform(asked)
	case "yaml":
		object, err := yaml.YAMLToJSON([]byte(asked.Text))
		return object, nil, err
	case "scale-to", "scale-from":
		return scale(asked)
	default:
		object, err := patched(asked)
		return object, nil, err
	}
}
