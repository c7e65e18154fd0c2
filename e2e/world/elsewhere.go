package world

import (
	"os"
	"path/filepath"
	"strings"
)

// Serve and ServeFlags are variables by which the stories are told to an installation that runs programs elsewhere: the first names
// the program that serves in the place of slipway, the second what it gets beside the flags of serve, with "{port}" for a free port and
// "{world}" for a number of the installation's own, which is the port that its nodes listen on.
const (
	Serve      = "SLIPWAY_E2E_SERVE"
	ServeFlags = "SLIPWAY_E2E_SERVE_FLAGS"
	// Volumes names the directory that has what sites store there, by their ids.
	Volumes = "SLIPWAY_E2E_VOLUMES"
)

func elsewhere() bool { return os.Getenv(Serve) != "" }

// Elsewhere reports whether programs run in another place than the service: what it ran when it was killed goes on there until it is back.
func (w *World) Elsewhere() bool { return elsewhere() }

// OwnServers reports whether the installation runs servers of its own for databases and object caches, and not the operator.
func (w *World) OwnServers() bool { return w.fleet == nil && !elsewhere() }

// addMariaDB makes an operator's server, as installations have that run programs elsewhere.
func (w *World) addMariaDB() (err error) {
	dir := filepath.Join(w.Dir, "mariadb")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	address, stop, err := MariaDB(dir, w.Hooks)
	if err != nil {
		return err
	}
	w.stopServers = stop
	w.Flags = append(w.Flags, "--mariadb", address)
	return nil
}

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
	_, own, _ := strings.Cut(w.Listen, ":")
	flags := strings.NewReplacer("{port}", number, "{world}", own).Replace(os.Getenv(ServeFlags))
	return program, w.Args(strings.Fields(flags)...), nil
}
