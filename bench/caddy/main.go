// Command caddy is Caddy as its project builds it, as a baseline for benchmarks. It has its own go.mod, so that the
// product doesn't depend on it.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
