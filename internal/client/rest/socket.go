package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/coder/websocket"
)

// Socket opens a WebSocket at a path below /api/v1. Messages may have up to limit bytes.
func (c *Client) Socket(ctx context.Context, path string, limit int64) (*websocket.Conn, error) {
	h := http.Header{"User-Agent": {"slipway-cli"}}
	if c.c.Token != nil {
		token, err := c.c.Token(ctx)
		if err != nil {
			return nil, err
		}
		h.Set("Authorization", "Bearer "+token)
	}
	transport := c.http.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2, transport.TLSNextProto = false, nil
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true) // WebSockets need HTTP/1.1
	own := *c.http
	own.Transport = transport
	conn, resp, err := websocket.Dial(ctx, c.c.Server+"/api/v1"+path, &websocket.DialOptions{HTTPClient: &own, HTTPHeader: h})
	switch {
	case err == nil:
		conn.SetReadLimit(limit)
		return conn, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case resp == nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	case resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode/100 == 2:
		return nil, errors.New("the server opens no WebSocket: a proxy before it may have to allow them")
	}
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, maxLine)) // the library keeps the start of the body
	return nil, refused(resp, answer)
}
