package sites

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/web/dashboard/shell"

	"github.com/coder/websocket"
)

// CloseRefused closes a WebSocket for a reason of ours, which the page shows.
const CloseRefused websocket.StatusCode = 4000

// MaxMessage is the most bytes of a browser's message.
const MaxMessage = 64 << 10

// wantsSocket reports whether a request asks for a WebSocket. Whether it may have one, acceptSocket
// checks.
func wantsSocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// ownOrigin reports whether a page of this dashboard sends the request. Browsers send Origin
// with every WebSocket; what comes without is refused.
func (d *Pages) ownOrigin(r *http.Request) bool {
	list := r.Header["Origin"]
	if len(list) != 1 {
		return false
	}
	at, err := url.Parse(list[0])
	if err != nil || at.Host == "" {
		return false
	}
	if base, err := url.Parse(d.BaseURL); err == nil && at.Scheme == base.Scheme && strings.EqualFold(at.Host, base.Host) {
		return true
	}
	return strings.EqualFold(at.Host, r.Host) && (r.TLS == nil || at.Scheme == "https")
}

// acceptSocket answers a request of ownOrigin with a WebSocket, or with what is wrong with it.
func acceptSocket(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	// its check allows requests without Origin, ownOrigin does not
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	c.SetReadLimit(MaxMessage)
	return c, nil
}

// sendSocket sends bytes, which the browser must take within sendTime. The context of a terminal
// is over before its last words are: it is no limit here.
func sendSocket(ctx context.Context, c *websocket.Conn, data []byte) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), shell.SendTime)
	defer done()
	return c.Write(ctx, websocket.MessageBinary, data)
}

// pingSocket keeps proxies from closing an idle connection. A browser whose answer does not come
// in time may be one whose input is not read at the moment.
func pingSocket(ctx context.Context, c *websocket.Conn, limit time.Duration) error {
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

// closeSocket ends a WebSocket with a reason that the page shows.
func closeSocket(c *websocket.Conn, code websocket.StatusCode, reason string) {
	_ = c.Close(code, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")) // closed already it has another reason
}
