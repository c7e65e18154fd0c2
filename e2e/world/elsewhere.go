package world

import (
	"os"
	"strings"
)

// Serve and ServeFlags are variables by which the stories are told to an installation that runs programs elsewhere: the first names
// the program that serves in the place of slipway, the second what it gets beside the flags of serve, with "{port}" for a free port.
const (
	Serve      = "SLIPWAY_E2E_SERVE"
	ServeFlags = "SLIPWAY_E2E_SERVE_FLAGS"
)

// serves returns the program that serves, and its whole command line.
func (w *World) serves() (program string, args []string, err error) {
	program = os.Getenv(Serve)
	if program == "" {
		return w.Binary, w.Args(), nil
	}
	port, err := FreePorts(1)
	if err != nil {
		return "", nil, err
	}
	_, number, _ := strings.Cut(port[0], ":")
	return program, w.Args(strings.Fields(strings.ReplaceAll(os.Getenv(ServeFlags), "{port}", number))...), nil
}
