package connlimit

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Idle records whether a connection waits for a request. Use it as http.Server.ConnState.
func Idle(c net.Conn, state http.ConnState) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if limited, ok := c.(*Conn); ok {
		switch state {
		case http.StateIdle:
			limited.SetIdle(true)
		case http.StateActive:
			limited.SetIdle(false)
		}
	}
}
