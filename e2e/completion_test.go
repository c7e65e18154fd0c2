package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// With the output of slipway completion, shells complete commands, flags and values. The manual page is well-formed.
func TestCompletionAndManual(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "slipway")); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_CACHE_HOME="+dir)
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env, c.Dir = env, dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v (apt-get install bash zsh fish mandoc)\n%s", name, err, out)
		}
		return string(out)
	}
	shells := map[string]func(words ...string) string{
		"bash": func(words ...string) string {
			return run("bash", append([]string{"--norc", "-c", `source <(slipway completion bash)
COMP_WORDS=(slipway "$@"); COMP_CWORD=$#; _slipway; printf '%s\n' "${COMPREPLY[@]}"`, "bash"}, words...)...)
		},
		"fish": func(words ...string) string {
			return run("fish", "--no-config", "-c", "slipway completion fish | source; complete -C '"+strings.Join(append([]string{"slipway"}, words...), " ")+"'")
		},
		"zsh": func(words ...string) string {
			// Print the completions that zsh would display with _describe.
			return run("zsh", append([]string{"-f", "-c", `compdef() { :; }; source <(slipway completion zsh)
_describe() { print -l -- "${(@P)2}"; }; _files() { :; }
words=(slipway "$@"); CURRENT=$(( $# + 1 )); _slipway`, "zsh"}, words...)...)
		},
	}
	for shell, complete := range shells {
		for _, c := range []struct {
			words []string
			want  string
		}{
			{[]string{"dep"}, "deploy deployments"},
			{[]string{"sites", ""}, "delete get list start stop"},
			{[]string{"completion", ""}, "bash fish zsh"},
			{[]string{"deploy", "--dr"}, "--dry-run"},
			{[]string{"deploy", "--message", "x", "--pre"}, "--prebuilt --preview"},
			{[]string{"__"}, ""},
		} {
			var got []string
			for line := range strings.Lines(complete(c.words...)) {
				word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				if shell == "zsh" {
					word, _, _ = strings.Cut(word, ":")
				}
				if word != "" {
					got = append(got, word)
				}
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%s completes %q to %q, want %q", shell, c.words, s, c.want)
			}
		}
	}
	page := run(binary, "man")
	file := filepath.Join(dir, "slipway.1")
	if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := run("mandoc", "-T", "lint", "-W", "error", file); out != "" {
		t.Errorf("the manual page:\n%s", out)
	}
	for _, want := range []string{"slipway sites list", "slipway serve", "EXIT STATUS"} {
		if shown := run("mandoc", "-T", "ascii", "-O", "width=200", file); !strings.Contains(plain(shown), want) {
			t.Errorf("the manual page says nothing of %s", want)
		}
	}
}

// plain returns a manual page without overstrikes, which make letters bold.
func plain(page string) string {
	var b []byte
	for i := range len(page) {
		if page[i] == '\b' {
			b = b[:len(b)-1]
			continue
		}
		b = append(b, page[i])
	}
	return string(b)
}
