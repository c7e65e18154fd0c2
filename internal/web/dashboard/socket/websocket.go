// Package socket owns the WebSockets of pages: who may open one, how much a message holds, and how one ends
// with a reason that the page shows.
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

// Wanted reports whether a request asks for a WebSocket. Whether it may have one, Accept
// checks.
func Wanted(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// OwnOrigin reports whether a page of this dashboard, which is reached at base, sends the request. Browsers send
// Origin with every WebSocket; what comes without is refused.
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

// Accept answers a request of OwnOrigin with a WebSocket whose messages have at most limit bytes, or with what
// is wrong with it.
func Accept(w http.ResponseWriter, r *http.Request, limit int64) (*websocket.Conn, error) {
	// its check allows requests without Origin, OwnOrigin does not
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(limit)
	return c, nil
}

// Send sends bytes, which the browser must take within shell.SendTime. The context of a terminal
// is over before its last words are: it is no limit here.
func Send(ctx context.Context, c *websocket.Conn, data []byte) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), shell.SendTime)
	defer done()
	return c.Write(ctx, websocket.MessageBinary, data)
}

// Ping keeps proxies from closing an idle connection. A browser whose answer does not come
// in time may be one whose input is not read at the moment.
func Ping(ctx context.Context, c *websocket.Conn, limit time.Duration) error {
	waiting, done := context.WithTimeout(ctx, limit)
	defer done()
	err := c.Ping(waiting)
	if waiting.Err() != nil {
		return nil
	}
	return err
}

// maxReason is the most bytes of the reason in a closing frame (RFC 6455, section 5.5).
const maxReason = 123

// Close ends a WebSocket with a reason that the page shows.
func Close(c *websocket.Conn, code websocket.StatusCode, reason string) {
	_ = c.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")) // closed already it has another reason
}
