// Prints a file of the health checks and actions that Argo CD has built in.
package main

import (
	"fmt"
	"os"

	"github.com/argoproj/argo-cd/v3/resource_customizations"
)

func main() {
	text, err := resource_customizations.Embedded.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdout.Write(text)
}
