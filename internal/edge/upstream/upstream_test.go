package upstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is a connection on which a program sends text, step bytes at a time.
type script struct {
	net.Conn
	text []byte
	step int
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.text)
	s.text = s.text[n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error)      { return len(p), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// answer holds a parsed response.
type answer struct {
	status int
	fields []string
	body   string
	kept   bool // the connection can be reused
}

// read parses one response and skips informational ones.
func read(text []byte, step int, head bool) (a answer, err error) {
	p := New(Config{Dial: func(context.Context) (net.Conn, error) { return &script{text: text, step: step}, nil }})
	c, err := p.Get(context.Background(), false)
	if err != nil {
		return a, err
	}
	var h Head
	for h.Status < 200 {
		if err := c.ReadHead(&h, head); err != nil {
			c.Close()
			return a, err
		}
	}
	a.status = h.Status
	for _, f := range h.Fields {
		a.fields = append(a.fields, string(f.Name)+": "+string(f.Value))
	}
	var body strings.Builder
	for {
		part, err := c.Next(func() error { return nil })
		if err == io.EOF {
			break
		}
		if err != nil {
			c.Close()
			return a, err
		}
		body.Write(part)
	}
	a.body = body.String()
	c.Put()
	a.kept = len(p.idle) == 1
	return a, nil
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	for name, tt := range map[string]struct {
		text, want string // want is the body, or empty if the response is refused
		refused    bool
		kept       bool
	}{
		"length":                {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
		"length twice the same": {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
		"length twice":          {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "", true, false},
		"length with a sign":    {"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", "", true, false},
		"list of lengths":       {"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", "", true, false},
		"short":                 {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", "", true, false},
		"more than it said":     {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello", "hell", false, false},
		"chunks": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
			"hello",
			false,
			true,
		},
		"chunks, trailers": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
			"hello",
			false,
			true,
		},
		"chunks beside a length": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
			"hello",
			false,
			false,
		},
		"chunk without an end": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello0\r\n\r\n", "", true, false},
		"chunks cut off":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "", true, false},
		"chunk with a sign":    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n", "", true, false},
		"chunk with 0x":        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", "", true, false},
		"huge chunk": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nhello\r\n0\r\n\r\n",
			"",
			true,
			false,
		},
		"two codings": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "", true, false},
		"chunked twice": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			"",
			true,
			false,
		},
		"until it closes":    {"HTTP/1.1 200 OK\r\n\r\nhello", "hello", false, false},
		"HTTP/1.0":           {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false, false},
		"HTTP/1.0 kept":      {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello", "hello", false, true},
		"HTTP/1.0 in chunks": {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", true, false},
		"closes":             {"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 5\r\n\r\nhello", "hello", false, false},
		"after others": {
			"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
			"ok",
			false,
			true,
		},
		"another protocol":   {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "", true, false},
		"no content":         {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "", false, true},
		"not modified":       {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", false, true},
		"no reason":          {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "", false, true},
		"lines without CR":   {"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "ok", false, true},
		"HTTP/2":             {"HTTP/2.0 200 OK\r\n\r\n", "", true, false},
		"no HTTP":            {"SSH-2.0-OpenSSH\r\n\r\n", "", true, false},
		"folded":             {"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", "", true, false},
		"space before colon": {"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", "", true, false},
		"CR in a value":      {"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n", "", true, false},
		"NUL in a value":     {"HTTP/1.1 200 OK\r\nA: b\x00\r\n\r\n", "", true, false},
		"large header":       {"HTTP/1.1 200 OK\r\nA: " + long + "\r\n\r\n", "", true, false},
		"many fields":        {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", maxFields+1) + "\r\n", "", true, false},
		"large body":         {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + long, long, false, true},
		"large chunk": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n186A0\r\n" + long + "\r\n0\r\n\r\n",
			long,
			false,
			true,
		},
		"long size line": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + long + "\r\nhello\r\n0\r\n\r\n",
			"",
			true,
			false,
		},
		"endless trailers": {
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 10_000) + "\r\n",
			"",
			true,
			false,
		},
		"nothing": {"", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, step := range []int{1, 7, 1 << 20} {
				a, err := read([]byte(tt.text), step, false)
				if (err != nil) != tt.refused {
					t.Fatalf("%d bytes at a time: %v", step, err)
				}
				if err == nil && (a.body != tt.want || step == 1<<20 && a.kept != tt.kept) {
					t.Errorf(
						"%d bytes at a time: %d bytes, kept %v; want %d bytes, kept %v",
						step,
						len(a.body),
						a.kept,
						len(tt.want),
						tt.kept,
					)
				}
			}
		})
	}
	if a, err := read([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), 9, true); err != nil || a.body != "" || !a.kept {
		t.Errorf("HEAD: %+v, %v", a, err)
	}
}

// net/http reads every complete response in the same way, and the size of the pieces doesn't matter.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nA: b\r\n\r\n",
		"HTTP/1.0 404 Not Found\nConnection: keep-alive, x\n\nhello",
		"HTTP/1.1 103 x\r\nLink: a\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := read(text, 1<<20, false)
		b, berr := read(text, 1, false)
		if (err != nil) != (berr != nil) ||
			err == nil && (a.status != b.status || a.body != b.body || fmt.Sprint(a.fields) != fmt.Sprint(b.fields)) {
			t.Fatalf("at once %+v, %v; in pieces %+v, %v", a, err, b, berr)
		}
		if err != nil {
			return
		}
		r := bufio.NewReader(bytes.NewReader(text))
		req := &http.Request{Method: "GET"}
		resp, err := http.ReadResponse(r, req)
		for err == nil && resp.StatusCode < 200 {
			resp, err = http.ReadResponse(r, req)
		}
		if err != nil {
			t.Fatalf("net/http refuses what was read as %+v: %v", a, err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != a.body || resp.StatusCode != a.status {
			t.Fatalf("net/http reads %d %q, %v; here %d %q", resp.StatusCode, body, err, a.status, a.body)
		}
		for _, field := range a.fields {
			name, value, _ := strings.Cut(field, ": ")
			name = http.CanonicalHeaderKey(name)
			switch name {
			case "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
				continue // net/http keeps them elsewhere
			}
			if !strings.Contains("\n"+strings.Join(resp.Header[name], "\n")+"\n", "\n"+value+"\n") {
				t.Fatalf("net/http reads %q as %q", field, resp.Header[name])
			}
		}
	})
}

// listen runs a program that handles each connection with serve.
func listen(t *testing.T, serve func(n int, c net.Conn)) *Pool {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(n, c)
		}
	}()
	return New(Config{Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}})
}

func ask(t *testing.T, c *Conn) error {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	var h Head
	if err := c.ReadHead(&h, false); err != nil {
		return err
	}
	for {
		if _, err := c.Next(func() error { return nil }); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// A connection is reused, except after the program has closed it.
func TestPool(t *testing.T) {
	t.Parallel()
	closed := make(chan bool)
	p := listen(t, func(n int, c net.Conn) {
		r := bufio.NewReader(c)
		for range 2 {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			io.WriteString(c, ok)
		}
		c.Close()
		closed <- true
	})
	var last *Conn
	for i := range 4 {
		c, err := p.Get(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		if again := c == last; again != (i%2 == 1) {
			t.Errorf("request %d: used again %v", i, again)
		}
		if err := ask(t, c); err != nil {
			t.Fatal(err)
		}
		c.Put()
		last = c
		if i%2 == 1 {
			<-closed
		}
	}
}

// A request written to a connection that the program was closing is known to be unread. One that the program read
// without answering isn't.
func TestUnread(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"unread": true, "read": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan bool)
			p := listen(t, func(n int, c net.Conn) {
				r := bufio.NewReader(c)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				io.WriteString(c, ok)
				<-asked
				if !want {
					_, _ = http.ReadRequest(r)
				}
				c.Close()
				asked <- true
			})
			c, err := p.Get(t.Context(), false)
			if err != nil {
				t.Fatal(err)
			}
			if err := ask(t, c); err != nil {
				t.Fatal(err)
			}
			c.Put()
			if c, err = p.Get(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			asked <- true
			<-asked
			var h Head
			err = c.ReadHead(&h, false)
			if err == nil {
				t.Fatal("there was an answer")
			}
			if got := c.Unread(err); got != want {
				t.Errorf("%v: unread %v, want %v", err, got, want)
			}
			c.Close()
		})
	}
}

// A connection that waits for its first request is usable while its other end is open.
func TestQuiet(t *testing.T) {
	t.Parallel()
	closing, closed := make(chan bool), make(chan bool)
	p := listen(t, func(_ int, c net.Conn) {
		<-closing
		c.Close()
		closed <- true
	})
	c, err := p.c.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !Quiet(c) {
		t.Error("an open connection is not taken")
	}
	closing <- true
	<-closed
	if Quiet(c) {
		t.Error("a closed connection is taken")
	}
}

// A read that timed out can be continued later.
func TestDeadline(t *testing.T) {
	t.Parallel()
	next := make(chan string)
	p := listen(t, func(n int, c net.Conn) {
		for text := range next {
			io.WriteString(c, text)
		}
	})
	defer close(next)
	c, err := p.Get(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var h Head
	var got string
	for _, text := range []string{"HTTP/1.1 200 OK\r\nTransfer", "-Encoding: chunked\r\n\r\n", "5\r", "\nhe", "llo\r\n", "0\r\n\r", "\n"} {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if h.Status == 0 {
			err = c.ReadHead(&h, false)
		} else {
			_, err = c.Next(func() error { return nil })
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("before %q: %v", text, err)
		}
		c.SetReadDeadline(time.Now().Add(time.Minute))
		next <- text
		for h.Status == 0 && strings.HasSuffix(text, "\n\r\n") {
			if err := c.ReadHead(&h, false); err != nil {
				t.Fatal(err)
			}
		}
		if h.Status != 0 && (strings.Contains(text, "he") || strings.HasPrefix(text, "llo")) {
			part, err := c.Next(func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			got += string(part)
		}
	}
	if _, err := c.Next(func() error { return nil }); err != io.EOF || got != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// Unused connections are closed. The most recently used ones are kept the longest.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var conns []net.Conn
		p := New(Config{Idle: time.Second, Most: 2, Dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			conns = append(conns, theirs)
			return ours, nil
		}})
		var all []*Conn
		for range 3 {
			c, _ := p.Get(t.Context(), false)
			c.mode = modeDone
			all = append(all, c)
		}
		all[0].Put()
		time.Sleep(600 * time.Millisecond)
		all[1].Put()
		all[2].Put() // one more than Most
		if _, err := conns[2].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("one too many: %v", err)
		}
		p.mu.Lock()
		left := len(p.idle)
		p.mu.Unlock()
		if left != 2 {
			t.Fatalf("%d wait", left)
		}
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		p.mu.Lock()
		left = len(p.idle)
		p.mu.Unlock()
		if left != 1 {
			t.Errorf("%d wait after a second", left)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		p.mu.Lock()
		left = len(p.idle)
		p.mu.Unlock()
		if left != 0 || p.timed {
			t.Errorf("%d wait at the end", left)
		}
	})
}
