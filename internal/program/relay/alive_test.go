package relay

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"slipway/internal/platform/wait"
)

// muffler relays between nodes. It passes bytes on, or, while quiet, accepts them and sends nothing.
type muffler struct {
	to    string
	quiet atomic.Bool
}

func (m *muffler) listen(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(to, from net.Conn) {
		defer to.Close()
		b := make([]byte, 1000)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if m.quiet.Load() {
				continue
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", m.to)
			if err != nil {
				c.Close()
				continue
			}
			go pass(up, c)
			go pass(c, up)
		}
	}()
	return l.Addr().String()
}

// A node may be silent although its end of the connection acknowledges everything. What was sent to it must then fail
// as if the node had died, and nothing may be sent to it until it answers again. A connection that is merely idle for
// long must not be ended.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	_, address, d := listening(t)
	between := &muffler{to: address}
	at := between.listen(t)
	c, _, err := d.Dial(t.Context(), at, "dep_echo")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 4)
	begun := time.Now()
	_ = c.SetReadDeadline(begun.Add(silentTime + 3*time.Second))
	var timeout net.Error
	if _, err := c.Read(b); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a connection without a word: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	if _, err := io.WriteString(c, "word"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "word" {
		t.Fatalf("%q, %v", b, err)
	}

	between.quiet.Store(true)
	begun = time.Now()
	if _, err := io.WriteString(c, "lost"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(begun.Add(time.Minute))
	if _, err := c.Read(b); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("what was sent to a silent node: %v", err)
	}
	if took := time.Since(begun); took < silentTime-askEvery {
		t.Errorf("the connection failed already after %s", took)
	}
	begun = time.Now()
	var silent *Silent
	if _, _, err := d.Dial(t.Context(), at, "dep_echo"); !errors.As(err, &silent) || !errors.Is(err, ErrUnreached) {
		t.Fatalf("a connection with a silent node: %v", err)
	}
	if took := time.Since(begun); took > dialTime {
		t.Errorf("Dial took %s", took)
	}
	between.quiet.Store(false)
	wait.Until(t, "it is heard again", func() bool {
		c, _, err := d.Dial(t.Context(), at, "dep_echo")
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}
