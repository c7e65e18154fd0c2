package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// At a terminal, slipway exec opens a terminal in the site's sandbox: input, including Ctrl-C, is passed on, and the
// command's exit code is returned. slipway db shell opens MariaDB's client in the same way.
func TestExecAtATerminal(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--base-url", "http://"+w.Listen)
	ctx, cancel := deadline()
	defer cancel()
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	key, err := w.User("ada@example.com")
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	for name, text := range map[string]string{
		"package.json": `{"name": "clock", "private": true, "scripts": {"start": "node server.js"}}`,
		"server.js":    `require('http').createServer((q, r) => r.end('up')).listen(process.env.PORT)`,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	terminal := w.Terminal(home)
	// run types each answer when the preceding text is shown.
	run := func(line string, status int, want string, dialog ...string) {
		t.Helper()
		terminal.React = func(shown string) string {
			if len(dialog) == 0 || !strings.Contains(shown, dialog[0]) {
				return ""
			}
			typed := dialog[1]
			dialog = dialog[2:]
			return typed
		}
		ctx, cancel := context.WithTimeout(ctx, world.Patience(2*time.Minute))
		defer cancel()
		shown, code, err := terminal.Run(ctx, line)
		if err != nil || code != status || !strings.Contains(shown, want) {
			t.Fatalf("%s ended with %d, %v, want %d and %q:\n%s", line, code, err, status, want, shown)
		}
	}
	run("export SLIPWAY_TOKEN="+key+" SLIPWAY_SERVER=http://"+w.Listen, 0, "")
	run("slipway init && slipway deploy", 0, "")
	run("slipway exec", 1, "not enabled")
	run(`slipway exec -- node -e 'console.log("answer " + 6 * 7)'`, 0, "answer 42")
	const site = `/sites/$(grep -o 'site_[a-z0-9]*' .slipway/project.json)`
	run(`echo '{"run": {"terminal": true}}' | slipway api PATCH "`+site+`" --input -`, 0, "")
	run(`slipway exec -- node -e 'console.log("answer " + 6 * 7)'`, 0, "answer 42")
	run("slipway exec -- sh", 3, "42", "$ ", "echo $((6 * 7)); exit 3\r")
	run(`slipway exec -- 'echo ready; exec sleep 600'`, 130, "ready", "ready", "\x03")

	run(`slipway api POST "`+site+`/databases" -f engine=mariadb`, 0, "")
	run("until slipway db list | grep -q active; do sleep 0.2; done", 0, "")
	run("slipway db shell", 0, "42", "MariaDB [", "select 6 * 7 as answer;\r", "1 row in set", "exit\r")
}
