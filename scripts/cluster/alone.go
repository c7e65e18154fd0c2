package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// unavailable is the exit status without an API server. scripts/check reads it.
const unavailable = 77

// alone vets the module cluster and runs its tests that need an API server but no node. It needs no root and takes
// seconds, after an earlier run has built the API server and compiled its client.
func alone() (code int, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return 1, err
	}
	if _, err := os.Stat(filepath.Join(cache, "slipway-cluster", version, "bin", "kubernetes")); err != nil {
		return unavailable, errors.New("there is no API server yet: make test-cluster builds it")
	}
	for _, argv := range [][]string{
		{"go", "-C", "cluster", "mod", "tidy", "-diff"},
		{"go", "-C", "cluster", "vet", "-tags=cluster", "./kube", "./inside", "./pod"},
		{"go", "-C", "cluster", "vet", "./kube"},
		{"go", "-C", "cluster", "test", "-count=1", "-vet=off", "./kube", "./inside", "./pod"},
	} {
		if err := step(argv, "CGO_ENABLED=0"); err != nil {
			var ended *exec.ExitError
			if errors.As(err, &ended) {
				return 1, nil
			}
			return 1, err
		}
	}
	return 0, nil
}
