package proxy

import (
	"bytes"

	"slipway/internal/edge/upstream"
)

// toProgram reports whether a field of a request reaches the program: it is the visitor's to say,
// and says nothing about the connection or where the request ends.
func toProgram[T string | []byte](name T) bool {
	return !hop(name) && !ours(name) && !cgiEqual(name, "content-length")
}

// toVisitor reports whether a field of an answer for a host reaches the visitor. more is what
// connections returns.
func (p *Proxy) toVisitor(f upstream.Field, more [][]byte, host string) bool {
	switch {
	case hop(f.Name), serverField(f.Name), upstream.Is(f.Name, "content-length"):
		return false
	case len(more) > 0 && named(more, f.Name):
		return false
	}
	return !upstream.Is(f.Name, "set-cookie") || !p.strayCookie(string(f.Value), host)
}

// hop reports whether a field, named in lower case but for its letters, concerns a
// connection and not who is behind it.
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

// serverField reports whether a field of an answer tells a server in front of the program
// something, which a visitor should not read, or leads to what isn't the program's.
func serverField[T string | []byte](name T) bool {
	return len(name) > 8 && cgiEqual(name[:8], "x-accel-") || cgiEqual(name, "x-sendfile") ||
		cgiEqual(name, "x-lighttpd-send-file") || cgiEqual(name, "x-litespeed-location") || cgiEqual(name, "alt-svc")
}

// named reports whether the field Connection names another (RFC 9110, section 7.6.1).
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

// connections returns the values of the fields Connection that name more than what is known.
func connections(fields []upstream.Field) (list [][]byte) {
	for _, f := range fields {
		if upstream.Is(f.Name, "connection") && !upstream.Is(f.Value, "close") && !upstream.Is(f.Value, "keep-alive") {
			list = append(list, f.Value)
		}
	}
	return list
}
