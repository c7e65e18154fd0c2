package transport

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/program/runtime"
)

// dialed is a program that a listener answers for.
type dialed struct {
	runtime.Program
	addr string
}

func (d dialed) Dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", d.addr)
}

// If a program's answer has a head larger than the limit, the service must use no more memory than that limit, whatever
// kind of request it answers.
func TestAnswersWithHugeHeads(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				size, early := 0, 0
				fmt.Sscanf(req.URL.Path, "/%d/%d", &size, &early)
				for range early {
					io.WriteString(c, "HTTP/1.1 103 Early Hints\r\nLink: "+strings.Repeat("y", 1<<10)+"\r\n\r\n")
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nX-Large: "+strings.Repeat("x", size)+"\r\nContent-Length: 2\r\n\r\nok")
			}()
		}
	}()
	tr := New(Config{Program: dialed{addr: l.Addr().String()}})
	defer tr.CloseIdleConnections()
	ask := func(path string) error {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://program"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for path, fits := range map[string]bool{
		"/100/0":     true,
		"/30000/0":   true,
		"/40000/0":   false,
		"/5000000/0": false,
		"/100/3":     true,
		"/100/1000":  false,
	} {
		if err := ask(path); (err == nil) != fits {
			t.Errorf("%s: %v", path, err)
		}
	}
}
