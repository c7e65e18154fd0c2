// Package e2e owns the end-to-end tests of what the product promises to users, with the real program.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"slipway/e2e/world"
)

var binary string

func TestMain(m *testing.M) {
	beBad()
	flag.Parse()
	os.Exit(world.Main(m, &binary))
}

// Each testdata/*.txtar is a script. The comment on commands explains its commands.
func TestStories(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, ".world")
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			w, err := world.New(binary, dir)
			if err != nil {
				return err
			}
			env.Defer(w.Close)
			env.Values[storyKey] = &story{world: w}
			env.Setenv("PATH", filepath.Dir(binary)+string(filepath.ListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DATA", w.Data)
			env.Setenv("LISTEN", w.Listen)
			env.Setenv("HTTP", w.HTTP)
			env.Setenv("HTTPS", w.HTTPS)
			_, port, err := net.SplitHostPort(w.HTTPS)
			if err != nil {
				return err
			}
			env.Setenv("HTTPS_PORT", port)
			env.Setenv("HOOKS", w.Hooks.URL)
			env.Setenv("HOOKS_CA", w.Hooks.CA)
			env.Setenv("GIT", w.Git.URL)
			return nil
		},
		Cmds: commands,
	})
}

// patience limits how long a script waits for a condition. Only a broken program uses it up.
const patience = 3 * time.Minute

func deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("nothing more came in %s", patience))
}
