package world

import (
	"os"
	"path/filepath"
	"strings"
)

// Serve and ServeFlags are environment variables for testing an installation that runs programs elsewhere. Serve is the
// program to run instead of slipway, ServeFlags its additional flags, in which "{port}" stands for a free port and
// "{world}" for the installation's number, which is the port of its nodes.
const (
	Serve      = "SLIPWAY_E2E_SERVE"
	ServeFlags = "SLIPWAY_E2E_SERVE_FLAGS"
	// Volumes is the directory of sites' storage in that case, by site id.
	Volumes = "SLIPWAY_E2E_VOLUMES"
)

func elsewhere() bool { return os.Getenv(Serve) != "" }

// Elsewhere reports whether programs run outside the service. They continue when it is killed, until it is back.
func (w *World) Elsewhere() bool { return elsewhere() }

// OwnServers reports whether the installation runs its own servers for databases and object caches, rather than using
// the operator's.
func (w *World) OwnServers() bool { return w.fleet == nil && !elsewhere() }

// addMariaDB starts an operator's server, which installations need that run programs elsewhere.
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

// serves returns the service's program and command line.
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
