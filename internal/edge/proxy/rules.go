package proxy

import (
	"bytes"

	"slipway/internal/edge/upstream"
)

// toProgram reports whether a request header is forwarded to the program: visitors may set it, and it affects neither
// the connection nor where the request ends.
func toProgram[T string | []byte](name T) bool {
	return !hop(name) && !ours(name) && !cgiEqual(name, "content-length")
}

// toVisitor reports whether a response header is forwarded to the visitor. more is the result of connections.
func (p *Proxy) toVisitor(f upstream.Field, more [][]byte, host string) bool {
	switch {
	case hop(f.Name), serverField(f.Name), upstream.Is(f.Name, "content-length"):
		return false
	case len(more) > 0 && named(more, f.Name):
		return false
	}
	return !upstream.Is(f.Name, "set-cookie") || !p.strayCookie(string(f.Value), host)
}

// hop reports whether a header, in any case of letters, is hop-by-hop.
func hop[T string | []byte](name T) bool {
	switch len(name) {
	case 2:
		return cgiEqual(name, "te")
	case 7:
		return cgiEqual(name, "trailer") || cgiEqual(name, "upgrade")
	case 10:
		return cgiEqual(name, "connection") || cgiEqual(name, "keep-alive")
	case 16:
		return cgiEqual(name, "proxy-connection")
	case 17:
		return cgiEqual(name, "transfer-encoding")
	case 18:
		return cgiEqual(name, "proxy-authenticate")
	case 19:
		return cgiEqual(name, "proxy-authorization")
	}
	return false
}

// serverField reports whether a response header controls a server in front of the program, which visitors shouldn't
// see, or points visitors elsewhere.
func serverField[T string | []byte](name T) bool {
	return len(name) > 8 && cgiEqual(name[:8], "x-accel-") || cgiEqual(name, "x-sendfile") ||
		cgiEqual(name, "x-lighttpd-send-file") || cgiEqual(name, "x-litespeed-location") || cgiEqual(name, "alt-svc")
}

// named reports whether the Connection header lists a name (RFC 9110 §7.6.1).
func named(connection [][]byte, name []byte) bool {
	for _, list := range connection {
		for item := range bytes.SplitSeq(list, []byte(",")) {
			if bytes.EqualFold(bytes.Trim(item, " \t"), name) {
				return true
			}
		}
	}
	return false
}

// connections returns the Connection values that list names other than the usual ones.
func connections(fields []upstream.Field) (list [][]byte) {
	for _, f := range fields {
		if upstream.Is(f.Name, "connection") && !upstream.Is(f.Value, "close") && !upstream.Is(f.Value, "keep-alive") {
			list = append(list, f.Value)
		}
	}
	return list
}
