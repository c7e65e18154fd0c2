// Command slipway-build carries out the build of a pod. With an argument it is the pod's entry point, as slipway-program
// is: the image of builds has one program for both.
package main

import (
	"os"

	"slipway/cluster/builder"
	"slipway/cluster/inside"
)

func main() {
	if len(os.Args) > 1 {
		os.Exit(inside.Main(os.Args[1:]))
	}
	os.Exit(builder.Main())
}
