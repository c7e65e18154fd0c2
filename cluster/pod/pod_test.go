package pod

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"slipway/internal/platform/wait"
)

// A line that Mark has marked is unmarked to the same stream and text.
func FuzzMark(f *testing.F) {
	f.Add(true, "hello")
	f.Add(false, "stderr: not really")
	f.Add(false, "stdout: stdout: twice")
	f.Fuzz(func(t *testing.T, errs bool, line string) {
		stream := "stdout"
		if errs {
			stream = "stderr"
		}
		if s, l := Unmark(Mark(stream, line)); s != stream || l != line {
			t.Errorf("%s %q is read as %s %q", stream, line, s, l)
		}
	})
}

// Listen reads a question as Ask wrote it and leaves the following bytes unread. A question without an end is rejected.
func TestQuestion(t *testing.T) {
	t.Parallel()
	var there bytes.Buffer
	link := struct {
		io.Reader
		io.Writer
	}{strings.NewReader("-"), &there}
	if reply, err := Ask(link, "secret", Stop, 1500); err != nil || reply != No {
		t.Fatalf("%q, %v", reply, err)
	}
	there.WriteString("GET / HTTP/1.1")
	token, verb, number, err := Listen(&there)
	if err != nil || token != "secret" || verb != Stop || number != 1500 || there.String() != "GET / HTTP/1.1" {
		t.Errorf("heard %q %q %d, %v and left %q", token, verb, number, err, there.String())
	}
	if _, _, _, err := Listen(strings.NewReader(strings.Repeat("x", 1<<20))); err == nil {
		t.Error("a request of 1 MiB without an end was accepted")
	}
}

// Typed text and terminal sizes are received as they were sent, however long they are.
func TestFrames(t *testing.T) {
	t.Parallel()
	var wire bytes.Buffer
	long := strings.Repeat("ls -la\r", 20_000)
	if err := WriteTyped(&wire, []byte(long)); err != nil {
		t.Fatal(err)
	}
	if err := WriteSize(&wire, Size{Columns: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	var typed []byte
	r := bufio.NewReader(&wire)
	for {
		more, size, err := ReadFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		if size != nil {
			if *size != (Size{80, 24}) || string(typed) != long {
				t.Errorf("%d bytes typed, size %v", len(typed), *size)
			}
			return
		}
		typed = append(typed, more...)
	}
}

// Join passes a reset of one connection on as a reset and an end as an end. Data sent earlier arrives in either case.
func TestJoin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		says  string
		reset bool
	}{{"", true}, {"", false}, {"hello", true}, {"hello", false}} {
		visitor, from := pair(t)
		to, program := pair(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			Join(from, to)
			from.Close()
			to.Close()
		}()
		if _, err := io.WriteString(visitor, "GET"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(program, tt.says); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, len(tt.says))
		if _, err := io.ReadFull(visitor, said); err != nil || string(said) != tt.says {
			t.Errorf("%+v: heard %q, %v", tt, said, err)
		}
		// All data is acknowledged when the sender's socket has no unsent bytes.
		wait.Until(t, "the visitor has all", func() bool { return unsent(from) == 0 })
		if _, err := io.ReadFull(program, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		if tt.reset {
			_ = program.SetLinger(0)
		}
		program.Close()
		if n, err := visitor.Read(make([]byte, 1)); n != 0 || errors.Is(err, syscall.ECONNRESET) != tt.reset || !tt.reset && err != io.EOF {
			t.Errorf("%+v: the visitor reads %d bytes, %v", tt, n, err)
		}
		visitor.Close()
		<-done
	}
}

// pair returns both ends of a connection.
func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near.(*net.TCPConn), far.(*net.TCPConn)
}
