package fastpath

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

var passable = []string{
	"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"HEAD /a/b?c=d&e=[f] HTTP/1.1\r\nhost: SITE.test:443\r\nCookie: a=b\r\nAuthorization: Basic x\r\nRange: bytes=0-1\r\nIf-None-Match: \"x\"\r\nConnection: close\r\n\r\n",
	"GET //a/../b HTTP/1.1\r\nHost: site.test\r\nX-Forwarded-For: 6.6.6.6\r\nAccept: */*\r\nAccept: a/b\r\n\r\n",
}

// hostile holds ambiguous requests and requests that concern the connection. All are left to net/http.
var hostile = []string{
	"POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 5\r\n\r\nhello",
	"GET / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding : chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding\t: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\n Transfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nX: y\r\n\tTransfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nX: y\nTransfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nX: y\rTransfer-Encoding: chunked\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nX: y\x00\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nHost: site.test\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"GET / HTTP/1.0\r\nHost: site.test\r\n\r\n",
	"GET / HTTP/1.1 \r\nHost: site.test\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET /a b HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET /a#b HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET /\xff HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET http://169.254.169.254/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET * HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nUpgrade: h2c\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nHTTP2-Settings: x\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nConnection: X-Forwarded-For, keep-alive\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nKeep-Alive: 1\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nProxy-Connection: close\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nExpect: 100-continue\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nTE: trailers\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nTrailer: x\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\n: x\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\nnothing\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.test\r\n" + strings.Repeat("A: b\r\n", maxRequestFields+1) + "\r\n",
}

func passing(text string) (*Request, bool) {
	h := &h1{conn: &conn{place: Place{Host: site}}}
	end := strings.Index(text, "\r\n\r\n")
	if end < 0 {
		return nil, false
	}
	r := &Request{}
	return r, h.parsePass(r, []byte(text)[:end+4])
}

func TestParsePass(t *testing.T) {
	t.Parallel()
	for _, text := range passable {
		if _, ok := passing(text); !ok {
			t.Errorf("refused: %q", text)
		}
	}
	for _, text := range hostile {
		if _, ok := passing(text); ok {
			t.Errorf("passed on: %q", text)
		}
	}
}

// A request is passed on only if net/http reads it the same way: method, target, host, fields, no body, and the same
// last byte.
func FuzzParsePass(f *testing.F) {
	for _, text := range append(passable, hostile...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := passing(text)
		if !ok {
			return
		}
		in := bufio.NewReader(strings.NewReader(text))
		want, err := http.ReadRequest(in)
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}
		rest, _ := io.ReadAll(in)
		if end := strings.Index(text,
			"\r\n\r\n") + 4; want.Method != r.Method || want.RequestURI != string(r.Target) || want.Host != string(r.Host) ||
			want.ContentLength != 0 || len(want.TransferEncoding) > 0 || string(rest) != text[end:] || want.Proto != "HTTP/1.1" {
			t.Fatalf("net/http reads %s %s %s, length %d, and %q is left", want.Method, want.RequestURI, want.Host,
				want.ContentLength, rest)
		}
		if want.Close && !r.Last {
			t.Fatal("net/http closes the connection")
		}
		n := 0
		for name, values := range want.Header {
			if name != "Connection" {
				n += len(values)
			}
		}
		if n != len(r.Fields) {
			t.Fatalf("net/http reads %d fields, here are %d", n, len(r.Fields))
		}
		for _, field := range r.Fields {
			found := false
			for _, v := range want.Header[http.CanonicalHeaderKey(string(field.Name))] {
				found = found || v == string(field.Value)
			}
			if !found {
				t.Fatalf("net/http doesn't read %s: %q", field.Name, field.Value)
			}
		}
	})
}

// Requests that are passed on and others on the same connection are answered in order, and no byte is lost when
// net/http takes over.
func TestPass(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) {
		c.Hosts.(*hosts).pass = func(r *Request) func() bool {
			if bytes.HasPrefix(r.Path, []byte("/leave")) {
				return nil
			}
			return func() bool {
				r.Begin(http.StatusOK)
				if bytes.HasPrefix(r.Path, []byte("/half")) {
					return r.Send(10, true) == nil && write(r, "half")
				}
				return r.Send(6, r.Method == http.MethodGet) == nil && (r.Method == http.MethodHead || write(r, "passed"))
			}
		}
	})
	c := dial(t, w.fast, "http/1.1")
	defer c.Close()
	io.WriteString(c,
		"GET /1 HTTP/1.1\r\nHost: site.test\r\n\r\nHEAD /2 HTTP/1.1\r\nHost: site.test\r\n\r\nGET /3 HTTP/1.1\r\nHost: site.test\r\n\r\nGET /leave HTTP/1.1\r\nHost: site.test\r\n\r\nGET /small HTTP/1.1\r\nHost: site.test\r\n\r\n")
	r := bufio.NewReader(c)
	for i, want := range []string{"passed", "", "passed", "status /leave\n", small} {
		method := "GET"
		if i == 1 {
			method = "HEAD"
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatal(i, err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != want {
			t.Errorf("answer %d: %q, %v; want %q", i, b, err, want)
		}
	}
	half := dial(t, w.fast, "http/1.1")
	defer half.Close()
	io.WriteString(half, "GET /half HTTP/1.1\r\nHost: site.test\r\n\r\nGET /1 HTTP/1.1\r\nHost: site.test\r\n\r\n")
	if b, _ := io.ReadAll(half); !strings.HasSuffix(string(b), "half") {
		t.Errorf("after half an answer: %q", b)
	}
	last := dial(t, w.fast, "http/1.1")
	defer last.Close()
	io.WriteString(last, "GET /1 HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n")
	if b, err := io.ReadAll(last); err != nil || !strings.HasSuffix(string(b), "passed") {
		t.Errorf("a last request: %q, %v", b, err)
	}
}

func write(r *Request, text string) bool {
	_, err := io.WriteString(r, text)
	return err == nil
}
