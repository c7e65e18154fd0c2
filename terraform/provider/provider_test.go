package provider_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"slipway/e2e/world"
)

var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(world.Built) == "" { // otherwise the helpers of e2e would build it from this module
		dir, err := os.MkdirTemp("", "slipway-terraform-")
		if err != nil {
			panic(err)
		}
		for _, args := range [][]string{
			{"generate", "./internal/platform/sandbox"},
			{"build", "-tags=slipway_init", "-o", dir + "/", "./cmd/slipway"},
		} {
			cmd := exec.Command("go", append([]string{"-C", filepath.Join("..", "..")}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%v: %v\n%s", args, err, out)
				os.Exit(1)
			}
		}
		os.Setenv(world.Built, dir)
		status := world.Main(m, &binary)
		os.RemoveAll(dir)
		os.Exit(status)
	}
	os.Exit(world.Main(m, &binary))
}

// start starts an installation with these flags, and returns it with the API key of one of its users.
func start(t *testing.T, flags ...string) (w *world.World, key string) {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(append(w.Flags, "--base-url", "http://"+w.Listen), flags...)
	ctx, cancel := context.WithTimeout(t.Context(), world.Patience(deadline))
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	return w, key
}
