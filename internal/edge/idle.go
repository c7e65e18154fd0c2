package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"

	"slipway/internal/connlimit"
)

// Places are limited by the listeners that the servers get (package connlimit): what is
// idle closes connections to admit new ones, and the last slots are for the control plane alone.

// Idle tells the limiter of a connection whether it waits for a request. It is for
// http.Server.ConnState.
func Idle(c net.Conn, state http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if limited, ok := c.(*connlimit.Conn); ok {
		switch state {
		case http.StateIdle:
			limited.SetIdle(true)
		case http.StateActive:
			limited.SetIdle(false)
		}
	}
}

var errNoPlace = errors.New("the last connections are reserved for the control plane")

// reserve ends a handshake on one of the last places unless it is for the control plane.
func (e *Edge) reserve(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*connlimit.Conn); ok && c.Spare() && !e.control[hostname(hello.ServerName)] {
		return nil, errNoPlace
	}
	return nil, nil
}
