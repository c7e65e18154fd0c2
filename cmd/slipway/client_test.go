package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Developers' machines are Macs and run Windows, too: there the program is the command line alone, without the server and its database.
func TestClientBuildsElsewhere(t *testing.T) {
	t.Parallel()
	for _, system := range []string{"darwin/arm64", "windows/amd64"} {
		t.Run(system, func(t *testing.T) {
			goos, arch, _ := strings.Cut(system, "/")
			run := func(args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
				}
				return string(out)
			}
			for name := range strings.FieldsSeq(run("list", "-deps", ".")) {
				for _, part := range []string{"server", "platform/db", "platform/sandbox", "tenant", "operator", "program"} {
					if strings.HasPrefix(name, "slipway/internal/"+part) {
						t.Errorf("it is built of %s", name)
					}
				}
			}
			run("build", "-o", os.DevNull, ".")
		})
	}
}

// An error is one line of bounded length, in which a server's words drive no terminal.
func TestSentences(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"one\n  two":            "one two",
		"\x1b]0;x\x07\r\x1b[2J": `\u001b]0;x\u0007 \u001b[2J`,
	} {
		if got := sentence(errors.New(in)); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
	if got := sentence(errors.New(strings.Repeat("x", 1<<20))); len(got) > maxComplaint+3 {
		t.Errorf("a sentence has %d bytes", len(got))
	}
}
