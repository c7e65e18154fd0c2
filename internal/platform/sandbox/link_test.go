package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The host connects to a server in the sandbox by its port, many times concurrently, asks it to stop, and learns when
// it ended. Nothing listens on the host's own loopback.
func TestLink(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:3000", "[::1]:3000"} {
		t.Run(addr, func(t *testing.T) {
			t.Parallel()
			b, work := newSandbox(t), newWork(t)
			var out bytes.Buffer
			links := make(chan *Link, 1)
			ended := make(chan Result, 1)
			go func() {
				res, err := b.Run(t.Context(), Command{
					Argv:   attackArgv("answer", addr),
					Work:   work,
					UID:    siteUID(),
					Limits: small(),
					Stdout: &out,
					Stderr: &out,
					Linked: func(l *Link) { links <- l },
				})
				if err != nil {
					t.Error(err)
				}
				ended <- res
			}()
			l := <-links
			var first net.Conn
			for deadline := time.Now().Add(time.Minute); ; {
				c, err := l.Dial(t.Context(), 3000)
				if err == nil {
					first = c
					break
				}
				if !errors.Is(err, ErrNobodyListens) || time.Now().After(deadline) {
					t.Fatalf("dial: %v\n%s", err, out.String())
				}
			}
			defer first.Close()
			var all sync.WaitGroup
			for i := range 100 {
				all.Go(func() {
					c, err := l.Dial(t.Context(), 3000)
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					want := fmt.Sprint("hello ", i)
					fmt.Fprint(c, want)
					got := make([]byte, len(want))
					if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
						t.Errorf("got %q, %v, want %q", got, err, want)
					}
				})
			}
			all.Wait()
			if _, err := l.Dial(t.Context(), 3001); !errors.Is(err, ErrNobodyListens) {
				t.Errorf("a port where nobody listens: %v", err)
			}
			if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				_ = c.Close()
				t.Error("the server is reachable on the host's own loopback")
			}
			if err := l.Signal(unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
			res := <-ended
			if res.ExitCode != 7 || res.Killed != NotKilled || !bytes.Contains(out.Bytes(), []byte("stopping")) {
				t.Errorf("after SIGTERM: %v\n%s", res, out.String())
			}
			if _, err := l.Dial(context.Background(), 3000); err == nil {
				t.Error("dialed a sandbox that has ended")
			}
		})
	}
}
