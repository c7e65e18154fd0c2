// Command slipway-program is the entry point of the pods that programs run in.
package main

import (
	"os"

	"slipway/cluster/inside"
)

func main() { os.Exit(inside.Main(os.Args[1:])) }
