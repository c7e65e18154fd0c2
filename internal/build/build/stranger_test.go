package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/build/framework"
	"slipway/internal/platform/fault"
)

// inTime fails if f blocks, such as on opening a pipe.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: the call still waits", what)
	}
}

// Whatever a build puts in the checkout's place, the program doesn't get other directories of the host, and nothing
// blocks.
func TestHandOverStaysInTheCheckout(t *testing.T) {
	t.Parallel()
	victim := t.TempDir()
	tree(t, victim, map[string]string{"secrets.key": "not yours", "package.json": "{}", "repo/package.json": "{}"})
	for name, put := range map[string]func(at string) error{
		"a link to a folder of the host": func(at string) error { return os.Symlink(victim, at) },
		"a link to a relative folder":    func(at string) error { return os.Symlink("../../"+filepath.Base(victim), at) },
		"a link to another of its own":   func(at string) error { return os.Symlink("old", at) },
		"a pipe":                         func(at string) error { return unix.Mkfifo(at, 0o666) },
		"a file":                         func(at string) error { return os.WriteFile(at, nil, 0o666) },
		"nothing":                        func(string) error { return nil },
	} {
		for _, runtime := range []string{framework.Node, framework.PHP, framework.Static} {
			work := t.TempDir()
			tree(t, work, map[string]string{"old/package.json": "{}", "old/dist/index.html": "x"})
			ok(t, put(filepath.Join(work, RepoDir)))
			b := &build{
				work: work, report: quiet{},
				Spec: Spec{
					Plan: framework.Plan{
						Runtime: runtime,
						Output:  "dist",
						Inputs:  []string{"package.json"},
						Modules: []string{"node_modules"},
					},
				},
			}
			inTime(t, name, func() {
				if key, err := b.modulesKey(); key != "" || err != nil {
					t.Errorf("%s: the key of what is installed is %q, %v", name, key, err)
				}
				if runtime == framework.Static {
					if _, ok := b.output(); ok {
						t.Errorf("%s: there is output", name)
					}
					return
				}
				err := b.handOver(context.Background(), func(_ context.Context, a Artefact) error {
					t.Errorf("%s: handed over is %s", name, a.Files.Name())
					return nil
				})
				if f := fault.As(err); f == nil || f.Code != "output_missing" {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
}

// Pipes in place of files that are read after a build don't block.
func TestPipesHoldNothingUp(t *testing.T) {
	t.Parallel()
	const known = `{"version": 3, "redirects": [], "headers": [], "rewrites": {"beforeFiles": []}}`
	usual := map[string]string{
		"package.json":                   `{"dependencies": {"web": "1"}, "scripts": {"start": "next start"}}`,
		"package-lock.json":              "{}",
		"node_modules/web/package.json":  "{}",
		"node_modules/tool/package.json": "{}",
		"node_modules/.bin/tool":         "x",
		".next/routes-manifest.json":     known,
		".next/static/a.js":              "a",
		"public/x":                       "x",
	}
	for _, pipe := range []string{
		"package.json", "package-lock.json", "node_modules", "node_modules/web/package.json", "node_modules/.bin",
		"node_modules/.bin/tool", "node_modules/.pnpm", ".next", ".next/routes-manifest.json", ".next/server",
		".next/server/middleware-manifest.json", ".next/standalone/server.js", ".next/static", "public",
	} {
		files := map[string]string{}
		for name, text := range usual {
			if name != pipe && !strings.HasPrefix(name, pipe+"/") {
				files["repo/"+name] = text
			}
		}
		work := t.TempDir()
		tree(t, work, files)
		at := filepath.Join(work, RepoDir, pipe)
		ok(t, os.MkdirAll(filepath.Dir(at), 0o755))
		ok(t, unix.Mkfifo(at, 0o666))
		b := &build{
			work: work, report: quiet{},
			Spec: Spec{
				Plan: framework.Plan{
					Framework: "next",
					Runtime:   framework.Node,
					Inputs:    []string{"package.json", "package-lock.json"},
					Modules:   []string{"node_modules"},
					Start:     start("npm", "start"),
				},
			},
		}
		inTime(t, pipe, func() {
			if _, err := b.modulesKey(); err != nil {
				t.Errorf("%s: %v", pipe, err)
			}
			b.conflict()
			b.unset()
			if err := b.handOver(context.Background(), func(context.Context, Artefact) error { return nil }); err != nil {
				t.Errorf("%s: %v", pipe, err)
			}
		})
	}
}
