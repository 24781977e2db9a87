// fetch URL: prints what a web server answers. In a static glibc program, as busybox is, looking a name up needs files of the C
// library that the image has not.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(os.Args[1])
	if err == nil {
		_, err = io.Copy(os.Stdout, answer.Body)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
