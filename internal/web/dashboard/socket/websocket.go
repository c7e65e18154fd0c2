// Package socket owns the pages' WebSockets: the check of their origin, message limits, and closing with a reason that
// the page displays.
package socket

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"slipway/internal/web/dashboard/shell"
)

// Wanted reports whether a request asks for a WebSocket. Accept decides whether it gets one.
func Wanted(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// OwnOrigin reports whether a page of the dashboard at base sent the request. Browsers always send Origin with
// WebSockets; requests without it are refused.
func OwnOrigin(r *http.Request, base string) bool {
	list := r.Header["Origin"]
	if len(list) != 1 {
		return false
	}
	at, err := url.Parse(list[0])
	if err != nil || at.Host == "" {
		return false
	}
	if base, err := url.Parse(base); err == nil && at.Scheme == base.Scheme && strings.EqualFold(at.Host, base.Host) {
		return true
	}
	return strings.EqualFold(at.Host, r.Host) && (r.TLS == nil || at.Scheme == "https")
}

// Accept upgrades a request that passed OwnOrigin to a WebSocket with messages of up to limit bytes, or responds with
// an error.
func Accept(w http.ResponseWriter, r *http.Request, limit int64) (*websocket.Conn, error) {
	// websocket.Accept allows requests without Origin; OwnOrigin doesn't.
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(limit)
	return c, nil
}

// Send sends data within [shell.SendTime]. It ignores ctx's cancellation, since a terminal's context ends before its last
// output.
func Send(ctx context.Context, c *websocket.Conn, data []byte) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), shell.SendTime)
	defer done()
	return c.Write(ctx, websocket.MessageBinary, data)
}

// Ping keeps proxies from closing an idle connection. A late pong isn't an error, since the browser's input may
// currently not be read.
func Ping(ctx context.Context, c *websocket.Conn, limit time.Duration) error {
	waiting, done := context.WithTimeout(ctx, limit)
	defer done()
	err := c.Ping(waiting)
	if waiting.Err() != nil {
		return nil
	}
	return err
}

// maxReason caps the reason in a close frame in bytes (RFC 6455 §5.5).
const maxReason = 123

// Close closes a WebSocket with a reason that the page displays.
func Close(c *websocket.Conn, code websocket.StatusCode, reason string) {
	_ = c.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")) // fails if already closed for another reason
}
