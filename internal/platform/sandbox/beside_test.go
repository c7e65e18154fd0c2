package sandbox

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"testing"
)

// A command run beside another is in the same sandbox, as a child of its init. It inherits neither the listener nor the
// input, and ends with the main command, whatever signals it ignores.
func TestBeside(t *testing.T) {
	t.Parallel()
	b, work := newSandbox(t), newWork(t)
	out, in := io.Pipe()
	done := make(chan struct{})
	var res Result
	var err error
	go func() {
		defer close(done)
		defer in.Close()
		res, err = b.Run(t.Context(), Command{
			Argv: []string{
				"/bin/sh",
				"-c",
				`while ! [ -e beside ]; do sleep 0.01; done; cat beside; read -r list < /proc/$$/task/$$/children; echo "children: $list"`,
			},
			Beside: [][]string{{
				"/bin/sh",
				"-c",
				`trap "" TERM HUP INT; echo "of $PPID $SECRET $(readlink /proc/self/fd/0) $([ -e /proc/self/fd/3 ] && echo open)" > half; mv half beside; while :; do sleep 1; done`,
			}},
			Dir:    Root,
			Env:    []string{"SECRET=shared"},
			Work:   work,
			UID:    siteUID(),
			Limits: small(),
			Stdout: in,
			Stderr: in,
			Linked: func(*Link) {},
		})
	}()
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
	}
	<-done
	if err != nil || !res.OK() {
		t.Fatalf("%v, %v: %s", res, err, said)
	}
	if len(said) != 2 || said[0] != "of 1 shared /dev/null " || strings.TrimSpace(said[1]) != "children:" {
		t.Errorf("%q", said)
	}
}

// A command doesn't fail if a program to run beside it is missing.
func TestBesideMissing(t *testing.T) {
	t.Parallel()
	b, work := newSandbox(t), newWork(t)
	var out bytes.Buffer
	res, err := b.Run(t.Context(), Command{
		Argv:   []string{"/bin/echo", "here"},
		Beside: [][]string{{"/usr/bin/missing"}, {"missing"}},
		Work:   work,
		UID:    siteUID(),
		Limits: small(),
		Stdout: &out,
		Stderr: &out,
	})
	if err != nil || !res.OK() || !strings.HasSuffix(out.String(), "here\n") || strings.Count(out.String(), "\n") != 3 {
		t.Errorf("%v, %v: %s", res, err, out.String())
	}
	p, err := NewPlain(Config{Dir: t.TempDir(), Self: plainHelper})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), Command{
		Argv:   []string{"/bin/true"},
		Beside: [][]string{{"/bin/true"}},
		Work:   work,
		UID:    plainUID,
	}); err == nil {
		t.Error("a command beside another was run by a plain Run")
	}
}
