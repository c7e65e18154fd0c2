package fastpath

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"slipway/internal/platform/wait"
)

// shut begins a Shutdown and returns once every connection has been notified.
func (w *world) shut(t *testing.T) (done chan error) {
	t.Helper()
	done = make(chan error, 1)
	go func() { done <- w.server.Shutdown(t.Context()) }()
	wait.Until(t, "the connections are drained", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for c := range w.server.conns {
			if !c.drained.Load() {
				return false
			}
		}
		return w.server.closing
	})
	return done
}

// dialNarrow connects with a small receive buffer.
func dialNarrow(t *testing.T, addr, proto string) *tls.Conn {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(
			c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) }),
			err,
		)
	}}
	c, err := tls.DialWithDialer(&d, "tcp", addr, &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{proto}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c
}

// The last response of a connection arrives whole even if the client keeps sending.
func TestLastAnswerArrives(t *testing.T) {
	t.Parallel()
	t.Run("http/1.1", func(t *testing.T) {
		t.Parallel()
		c := dialNarrow(t, start(t).fast, "http/1.1")
		io.WriteString(c, get("/large", "Connection: close\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		size, buf := 0, make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			size += n
			if err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%d bytes, %v", size, err)
			}
			io.WriteString(c, "what nobody reads")
		}
		if size != len(large) {
			t.Errorf("%d bytes", size)
		}
	})
	for _, path := range []string{"/large", "/large?odd"} {
		t.Run("h2 "+path, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			r := &raw{t: t, conn: dialNarrow(t, w.fast, "h2")}
			r.setUp()
			io.WriteString(r.conn, http2.ClientPreface)
			r.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
			r.WriteWindowUpdate(0, 1<<20)
			r.get(1, path)
			size := 0
			var done chan error
			for ended := false; !ended; {
				f, err := r.ReadFrame()
				if err != nil {
					t.Fatalf("%d bytes, %v", size, err)
				}
				if d, ok := f.(*http2.DataFrame); ok {
					size += len(d.Data())
					ended = d.StreamEnded()
					r.WriteWindowUpdate(0, uint32(len(d.Data())))
					if done == nil {
						done = w.shut(t)
					}
				}
			}
			if size != len(large) {
				t.Errorf("%d bytes", size)
			}
			r.conn.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// Streams that a client began before it learned of the shutdown don't end a response in progress.
func TestIgnoredStreams(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := dialH2(t, w.fast, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 100})
	r.get(1, "/large")
	r.listen(func(h *heard) bool { return h.size[1] == 100 })
	done := w.shut(t)
	r.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: r.block(fieldsOf("POST", "/")...), EndHeaders: true})
	r.WriteData(3, false, []byte("a body"))
	r.WriteWindowUpdate(3, 10)
	r.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: r.block("x-trailer", "a"), EndHeaders: true, EndStream: true})
	r.WriteRSTStream(3, http2.ErrCodeCancel)
	r.WriteWindowUpdate(0, uint32(len(large)))
	r.WriteWindowUpdate(1, uint32(len(large)))
	h := r.listen(func(h *heard) bool { return h.ended[1] })
	if h.bad != nil || h.size[1] != len(large)-100 || h.goAway == nil || *h.goAway != http2.ErrCodeNo || h.status[3] != "" {
		t.Errorf("%+v", h)
	}
	r.conn.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A request that had arrived in part before the shutdown is answered, by the fast path or by net/http.
func TestShutdownWithinHeader(t *testing.T) {
	t.Parallel()
	for path, status := range map[string]int{"/small": 200, "/status?odd": 404} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			c := dial(t, w.fast, "http/1.1")
			in := bufio.NewReader(c)
			text := []byte(get("/small", "") + get(path, ""))
			half := bytes.LastIndex(text, []byte("HTTP/1.1"))
			c.Write(text[:half])
			answer := func(want int) {
				t.Helper()
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
					t.Error(fmt.Sprint(resp.StatusCode), err)
				}
			}
			answer(200) // the half arrived with the first request, so it was read too
			done := w.shut(t)
			c.Write(text[half:])
			answer(status)
			if _, err := in.ReadByte(); err != io.EOF {
				t.Error("the connection stays open:", err)
			}
			c.Close()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// Connections accepted before a shutdown get their first request answered: before or after their handshake, and on
// HTTP/2. A connection without a request delays the shutdown for at most freshTime.
func TestShutdownAnswersFirstRequests(t *testing.T) {
	t.Parallel()
	w := start(t)
	early, err := net.Dial("tcp", w.fast)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	late := dial(t, w.fast, "http/1.1")
	second := dialH2(t, w.fast)
	silent := dial(t, w.fast, "http/1.1")
	wait.Until(t, "all are accepted", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		return len(w.server.conns) == 4
	})
	begun := time.Now()
	done := w.shut(t)

	handshake := tls.Client(early, &tls.Config{ServerName: site, InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	for name, c := range map[string]net.Conn{"before its handshake": handshake, "after its handshake": late} {
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, get("/small", ""))
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if resp.StatusCode != 200 || !resp.Close {
			t.Errorf("%s: %d, the last one: %v", name, resp.StatusCode, resp.Close)
		}
	}
	second.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: second.block(fieldsOf("GET", "/small")...),
	})
	if h := second.listen(func(h *heard) bool { return h.ended[1] && h.goAway != nil }); h.status[1] != "200" {
		t.Errorf("on HTTP/2: %v", h)
	}
	second.conn.Close()
	select {
	case err := <-done:
		if took := time.Since(begun); err != nil || took < freshTime/2 {
			t.Errorf("the shutdown ends after %s, before the silent one's time is over: %v", took, err)
		}
	case <-time.After(patience):
		t.Error("who never asks holds the shutdown up")
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("who never asked gets something")
	}
}
