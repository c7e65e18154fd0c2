// Command receiver verifies webhook deliveries with Svix's Go library. It reads cases as JSON from standard input and
// prints y or n for each. The tests in e2e also run the Node.js libraries in the folder node.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	svix "github.com/svix/svix-webhooks/go"
)

func main() {
	var cases []struct {
		Secret  string // of the form whsec_
		Headers map[string]string
		Body    []byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, c := range cases {
		h := http.Header{}
		for name, v := range c.Headers {
			h.Set(name, v)
		}
		w, err := svix.NewWebhook(c.Secret)
		if err == nil {
			err = w.Verify(c.Body, h)
		}
		if err != nil {
			fmt.Print("n")
		} else {
			fmt.Print("y")
		}
	}
}
