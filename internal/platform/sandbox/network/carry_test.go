package network

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

func TestReadHead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text   string
		status int
		rest   string
	}{
		"tunnel":         {"HTTP/1.1 200 Connection established\r\n\r\nbytes", 200, "bytes"},
		"headers":        {"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nX: y\r\n\r\nno", 403, "no"},
		"no reason":      {"HTTP/1.1 204\r\n\r\n", 204, ""},
		"cut":            {"HTTP/1.1 200 OK\r\nA: b\r\n", 0, ""},
		"nothing":        {"", 0, ""},
		"not HTTP":       {"SSH-2.0-x\r\n\r\n", 0, ""},
		"no number":      {"HTTP/1.1 2xx OK\r\n\r\n", 0, ""},
		"endless line":   {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 1<<16) + "\r\n\r\n", 0, ""},
		"endless header": {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<10) + "\r\n", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bufio.NewReader(strings.NewReader(tt.text))
			status, err := readHead(r)
			if status != tt.status || (err == nil) != (tt.status > 0) {
				t.Fatalf("status %d, %v; want %d", status, err, tt.status)
			}
			if rest, _ := io.ReadAll(r); tt.status > 0 && string(rest) != tt.rest {
				t.Errorf("what follows is %q, want %q", rest, tt.rest)
			}
		})
	}
}
