// Command encryption transforms values as Kubernetes' API servers do: "encryption CONFIG", then a JSON object a line on standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"
)

type request struct {
	Op       string // "encrypt" or "decrypt"
	Resource string // "virtualmachines.kubevirt.io"
	Key      string // in etcd
	Value    []byte
}

type response struct {
	Value []byte `json:"value"`
	Stale bool   `json:"stale"`
	Error string `json:"error"`
}

func main() {
	ctx := context.Background()
	config, err := encryptionconfig.LoadEncryptionConfig(ctx, os.Args[1], false, "")
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println("ready")
	transformers := encryptionconfig.StaticTransformers(config.Transformers)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		if err := answers.Encode(answer(ctx, transformers, asked)); err != nil {
			panic(err)
		}
	}
}

func answer(ctx context.Context, transformers encryptionconfig.StaticTransformers, asked request) (given response) {
	transformer := transformers.TransformerForResource(schema.ParseGroupResource(asked.Resource))
	about := value.DefaultContext(asked.Key)
	var err error
	if asked.Op == "encrypt" {
		given.Value, err = transformer.TransformToStorage(ctx, asked.Value, about)
	} else {
		given.Value, given.Stale, err = transformer.TransformFromStorage(ctx, asked.Value, about)
	}
	if err != nil {
		given.Error = err.Error()
	}
	return given
}
