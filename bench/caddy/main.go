// Command caddy is Caddy as its own project builds it: a yardstick for the benchmarks. It
// has a go.mod of its own, so that nothing of it is in the product's.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
