package terminal_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"slipway/internal/client/rest"
	"slipway/internal/client/terminal"
)

// run connects a terminal to a server whose end is handled by far.
func run(t *testing.T, in io.Reader, sizes []terminal.Size, far func(ctx context.Context, c *websocket.Conn)) (code int, out string, err error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/sites/site_a/terminal" || r.Header.Get("Authorization") != "Bearer slw_a" {
			http.Error(w, `{"error": "Not found"}`, 404)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		far(r.Context(), c)
	}))
	t.Cleanup(srv.Close)
	c, err := rest.New(rest.Config{Server: srv.URL, Token: func(context.Context) (string, error) { return "slw_a", nil }})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Socket(t.Context(), "/sites/site_a/terminal", terminal.MaxMessage)
	if err != nil {
		t.Fatal(err)
	}
	shown := screen{sizes: sizes}
	code, err = terminal.Run(t.Context(), conn, in, &shown)
	return code, shown.String(), err
}

// screen reports each of its sizes once and then repeats the last one.
type screen struct {
	bytes.Buffer
	sizes []terminal.Size
}

func (s *screen) Size() (now terminal.Size) {
	if len(s.sizes) == 0 {
		return now
	}
	now = s.sizes[0]
	if len(s.sizes) > 1 {
		s.sizes = s.sizes[1:]
	}
	return now
}

// Input arrives byte by byte, including Ctrl-C, and the command's exit code is returned.
func TestRun(t *testing.T) {
	t.Parallel()
	code, out, err := run(t, strings.NewReader("ls\r\x03"), nil, func(ctx context.Context, c *websocket.Conn) {
		var typed []byte
		for !bytes.HasSuffix(typed, []byte("\x03")) {
			_, b, err := c.Read(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			typed = append(typed, b...)
		}
		_ = c.Write(ctx, websocket.MessageBinary, append([]byte("typed "), typed...))
		_ = c.Write(ctx, websocket.MessageText, []byte(`{"exitCode": 130, "reason": "signal SIGINT"}`))
		_ = c.Close(websocket.StatusNormalClosure, "")
	})
	if code != 130 || out != "typed ls\r\x03" || err != nil {
		t.Errorf("%d, %q, %v", code, out, err)
	}
}

// A connection that breaks or is closed with a reason is an error, even after output.
func TestCut(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*websocket.Conn){
		"lost":                 func(c *websocket.Conn) { c.CloseNow() },
		"Closed after an hour": func(c *websocket.Conn) { _ = c.Close(4000, "Closed after an hour") },
	} {
		in, typed := io.Pipe()
		t.Cleanup(func() { typed.Close() })
		_, out, err := run(t, in, nil, func(ctx context.Context, c *websocket.Conn) {
			_ = c.Write(ctx, websocket.MessageBinary, []byte("$ "))
			end(c)
		})
		if err == nil || !strings.Contains(err.Error(), name) || out != "$ " {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// A changed window size is sent to the server.
func TestSize(t *testing.T) {
	t.Parallel()
	in, typed := io.Pipe()
	t.Cleanup(func() { typed.Close() })
	sizes := []terminal.Size{{Columns: 80, Rows: 24}, {Columns: 132, Rows: 43}}
	code, _, err := run(t, in, sizes, func(ctx context.Context, c *websocket.Conn) {
		kind, b, err := c.Read(ctx)
		if kind != websocket.MessageText || string(b) != `{"columns":132,"rows":43}` || err != nil {
			t.Errorf("%v %q %v", kind, b, err)
		}
		_ = c.Write(ctx, websocket.MessageText, []byte(`{"exitCode": 0}`))
		_ = c.Close(websocket.StatusNormalClosure, "")
	})
	if code != 0 || err != nil {
		t.Errorf("%d, %v", code, err)
	}
}
