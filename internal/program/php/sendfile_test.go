package php

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// says makes a site's scripts give this CGI response.
func says(t *testing.T, s *Site, text string) {
	t.Helper()
	s.Dial = func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			in := bufio.NewReader(theirs)
			for { // until the end of standard input
				var head [8]byte
				if _, err := io.ReadFull(in, head[:]); err != nil {
					return
				}
				n := int(binary.BigEndian.Uint16(head[4:])) + int(head[6])
				if _, err := io.CopyN(io.Discard, in, int64(n)); err != nil {
					return
				}
				if head[1] == 5 && n == 0 {
					break
				}
			}
			record := func(kind byte, text string) {
				head := []byte{1, kind, 0, 1, 0, 0, 0, 0}
				binary.BigEndian.PutUint16(head[4:], uint16(len(text)))
				_, _ = theirs.Write(append(head, text...))
			}
			record(6, text)
			record(6, "")
			record(3, strings.Repeat("\x00", 8))
		}()
		return ours, nil
	}
}

func ask(t *testing.T, s *Site, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://site.test"+path, nil)
	r.Header = header
	resp, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp, string(text)
}

// A script may check who may have a file and let the service send it. The service must send only files in storage.
func TestFilesThatScriptsName(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php", "public/uploads/a b.pdf", "public/uploads/evil.php", "config.php", "public/shown.txt")
	const file = "public/uploads/a b.pdf"
	for _, tt := range []struct {
		field, method string
		header        http.Header
		status        int
		text          string
	}{
		{"X-Sendfile: /app/public/uploads/a b.pdf", "GET", nil, 200, file},
		{"X-Sendfile: /app/public/uploads/../uploads/a b.pdf", "GET", nil, 200, file},
		{"X-Accel-Redirect: /uploads/a b.pdf", "GET", nil, 200, file},
		{"X-Accel-Redirect: /public/uploads/a b.pdf?x=y", "GET", nil, 200, file},
		{"X-Accel-Redirect: /uploads/a%20b.pdf", "GET", nil, 200, file},
		{"X-Accel-Redirect: /uploads/%2e%2e/%2e%2e/config.php", "GET", nil, 404, "Not found\n"},
		{"X-Accel-Redirect: /uploads%2f..%2f..%2fconfig.php", "GET", nil, 404, "Not found\n"},
		{"X-Accel-Redirect: /uploads/%zz", "GET", nil, 404, "Not found\n"},
		{"X-Accel-Redirect: /uploads/a b.pdf", "HEAD", nil, 200, ""},
		{"X-Sendfile: /app/public/uploads/a b.pdf", "GET", http.Header{"Range": {"bytes=0-5"}}, 206, "public"},
		{"X-Sendfile: /app/public/uploads/a b.pdf", "GET", http.Header{"Range": {"bytes=99-"}}, 416, ""},
		{"X-Sendfile: /app/config.php", "GET", nil, 404, "Not found\n"},
		{"X-Sendfile: /app/public/shown.txt", "GET", nil, 404, "Not found\n"},
		{"X-Sendfile: /etc/passwd", "GET", nil, 404, "Not found\n"},
		{"X-Sendfile: /app/public/uploads/../../config.php", "GET", nil, 404, "Not found\n"},
		{"X-Sendfile: /app", "GET", nil, 404, "Not found\n"},
		{"X-Accel-Redirect: /../../etc/passwd", "GET", nil, 404, "Not found\n"},
		{"X-Accel-Redirect: /uploads/", "GET", nil, 404, "Not found\n"},
		{"X-Other: /x", "GET", nil, 200, "secret?"},
	} {
		says(t, s, "Content-Type: application/pdf\r\nSet-Cookie: a=b\r\n"+tt.field+"\r\n\r\nsecret?")
		resp, text := ask(t, s, tt.method, "/download", tt.header)
		if resp.StatusCode != tt.status || tt.status != 416 && text != tt.text {
			t.Errorf("%s %v: %d %q", tt.field, tt.header, resp.StatusCode, text)
		}
		if tt.status == 200 && (resp.Header.Get("Content-Type") != "application/pdf" || resp.Header.Get("Set-Cookie") != "a=b" ||
			resp.Header.Get("X-Sendfile")+resp.Header.Get("X-Accel-Redirect") != "") {
			t.Errorf("%s: %v", tt.field, resp.Header)
		}
	}
}

// Text from scripts must be compressed for visitors who accept it, unless it is compressed already or must not be
// changed.
func TestAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	s := site(t, "public", "public/index.php")
	s.Gzip = true
	long := strings.Repeat("<p>text</p>", 300)
	for _, tt := range []struct {
		fields, accept string
		packed, vary   bool
	}{
		{"Content-Type: text/html; charset=UTF-8", "gzip, br", true, true},
		{"Content-Type: application/json\r\nStatus: 404", "gzip", true, true},
		{"Content-Type: text/html\r\nVary: Accept-Encoding", "", false, true},
		{"Content-Type: text/html", "br", false, true},
		{"Content-Type: text/html", "gzip;q=0", false, true},
		{"Content-Type: text/event-stream", "gzip", false, false},
		{"Content-Type: image/png", "gzip", false, false},
		{"Content-Type: text/html\r\nContent-Encoding: br", "gzip", false, false},
		{"Content-Type: text/html\r\nCache-Control: private, No-Transform", "gzip", false, false},
		{"Content-Type: text/html\r\nStatus: 206\r\nContent-Range: bytes 0-9/99", "gzip", false, false},
	} {
		says(t, s, tt.fields+"\r\nEtag: \"x\"\r\n\r\n"+long)
		resp, text := ask(t, s, "GET", "/", http.Header{"Accept-Encoding": {tt.accept}})
		packed := resp.Header.Get("Content-Encoding") == "gzip"
		if packed {
			r, err := gzip.NewReader(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(r)
			if err != nil || len(text) > len(long)/4 || resp.Header.Get("Etag") != `W/"x"` {
				t.Errorf("%s: %d bytes, Etag %s, %v", tt.fields, len(text), resp.Header.Get("Etag"), err)
			}
			text = string(b)
		}
		if packed != tt.packed || text != long || len(resp.Header["Vary"]) > 1 || (resp.Header.Get("Vary") != "") != tt.vary {
			t.Errorf("%s for %q: compressed %v, %d bytes, Vary %q", tt.fields, tt.accept, packed, len(text), resp.Header["Vary"])
		}
	}
	says(t, s, "Content-Type: text/html\r\nContent-Length: 5\r\n\r\nshort")
	if resp, text := ask(t, s, "GET", "/", http.Header{"Accept-Encoding": {"gzip"}}); text != "short" {
		t.Errorf("%v %q", resp.Header, text)
	}
}
