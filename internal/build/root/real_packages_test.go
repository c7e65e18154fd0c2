//go:build packages

package root

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

// Each kind in the catalogue can be installed from Debian's packages, and its programs run in a sandbox.
func TestReal(t *testing.T) {
	for _, k := range Catalogue {
		t.Run(k.Name, func(t *testing.T) {
			w := newWorld(t)
			begun := time.Now()
			l, err := w.roots.Use(t.Context(), k, t.Logf)
			if err != nil {
				t.Fatalf("%v: %+v", err, fault.As(err))
			}
			defer l.Release()
			t.Logf("%s: %s, %d MB, %d packages", l.ID, time.Since(begun).Round(time.Second), l.Size>>20, len(l.Versions))
			if left, _ := filepath.Glob(filepath.Join(w.roots.c.Dir, "new", "*")); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
			if k.php != "" {
				checkPHP(t, w, l)
			}
			for _, tool := range k.tools {
				if out := w.run(l, l.Binds(), "/bin/sh", "-c", toolTrials[tool]); !strings.Contains(out, "works") {
					t.Errorf("%s: %s", tool, out)
				}
			}
		})
	}
}

// toolTrials maps tools to commands that build a small site.
var toolTrials = map[string]string{
	"hugo":    `set -e; hugo new site . --force >/dev/null; mkdir -p layouts; echo works >layouts/index.html; hugo >&2; cat public/index.html`,
	"mdbook":  `set -e; mkdir src; echo "[x](x.md)" >src/SUMMARY.md; echo works >src/x.md; touch book.toml; mdbook build >&2; cat book/x.html`,
	"jekyll":  `set -e; printf -- '---\n---\nworks\n' >index.html; jekyll build >&2; cat _site/index.html`,
	"bundle":  `set -e; touch Gemfile; bundle --version; BUNDLE_PATH=$PWD/vendor/bundle bundle install; echo works`,
	"python3": `set -e; python3 -m venv .venv; .venv/bin/pip --version; echo works`,
}

func checkPHP(t *testing.T, w *world, l *Lease) {
	v := l.php()
	if !strings.HasPrefix(v.Number, strings.TrimPrefix(l.Name, "php")+".") || !v.HasComposer() {
		t.Errorf("%+v", v)
	}
	out := w.run(l, append(v.Binds(), l.Binds()...), v.CLI, "-m")
	modules := strings.Fields(strings.ToLower(out))
	for _, name := range append(phpExtensions, "exif", "sodium", "mysqli", "pdo_mysql", "pdo_pgsql", "pdo_sqlite", "dom", "simplexml", "opcache") {
		if name != "mysql" && !slices.Contains(modules, name) {
			t.Errorf("PHP of %s lacks %s: %s", l.ID, name, out)
		}
	}
	if out := w.run(l, v.Binds(), "/bin/sh", "-c", "ln -s "+v.CLI+" php && PATH=$PWD:$PATH composer --version && git --version && redis-server --version"); !strings.Contains(out, "Composer") {
		t.Errorf("Composer: %s", out)
	}
}

func (w *world) run(l *Lease, binds []sandbox.Bind, argv ...string) string {
	w.t.Helper()
	work := filepath.Join(w.t.TempDir(), "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := sandbox.Own(work, testUID); err != nil {
		w.t.Fatal(err)
	}
	var out bytes.Buffer
	res, err := w.roots.c.Sandbox.Run(w.t.Context(), sandbox.Command{
		Argv: argv, System: l.Tree(), Binds: binds, Work: work, UID: testUID, Stdout: &out, Stderr: &out,
		Limits: sandbox.Limits{Wall: time.Minute},
	})
	if err != nil || !res.OK() {
		w.t.Errorf("%v: %s %v: %s", argv, res, err, out.String())
	}
	return out.String()
}
