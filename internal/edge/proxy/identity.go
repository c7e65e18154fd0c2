package proxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/edge/access"
	"slipway/internal/edge/response"
)

// rewrite prepares the request for the program: it keeps host and path and replaces headers that identify the visitor
// and the request by our own.
func rewrite(p *httputil.ProxyRequest, id string) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", "program"
	p.Out.URL.RawQuery = string(appendTarget(nil, p.In.URL.RawQuery))
	p.Out.Host = p.In.Host
	p.Out.Trailer = nil // trailers would arrive after the body was checked
	if otherHTTP(p.Out.Header["Upgrade"]) {
		delete(p.Out.Header, "Upgrade")
		delete(p.Out.Header, "Connection")
	}
	delete(p.Out.Header, "Http2-Settings")
	for name := range p.Out.Header {
		if ours(name) {
			delete(p.Out.Header, name)
		}
	}
	addr, proto, forwarded := whoAsks(p.In)
	h := p.Out.Header
	if len(h["Cookie"]) > 0 {
		access.DropCookies(h)
	}
	h["X-Forwarded-For"] = []string{addr}
	h["X-Real-Ip"] = h["X-Forwarded-For"]
	h["X-Forwarded-Proto"] = []string{proto}
	h["X-Forwarded-Host"] = []string{p.In.Host}
	h["X-Forwarded-Port"] = []string{port(p.In.Host, proto)}
	h[response.RequestField] = []string{id}
	h["Forwarded"] = []string{forwarded}
}

// otherHTTP reports whether an upgrade leads to another HTTP version. It is refused, because the visitor could then
// send further, unchecked requests and forge their identity. Ignoring Upgrade is always allowed (RFC 9110 §7.8).
func otherHTTP(upgrade []string) bool {
	for _, list := range upgrade {
		for item := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(item)), "/")
			switch name {
			case "h2c", "h2", "h3", "http", "tls":
				return true
			}
		}
	}
	return false
}

// whoAsks returns what a program learns about the visitor: address, protocol and the Forwarded header.
func whoAsks(r *http.Request) (addr, proto, forwarded string) {
	proto = "http"
	if r.TLS != nil {
		proto = "https"
	}
	addr = address(r.RemoteAddr)
	return addr, proto, forwardedField(addr, r.Host, proto)
}

// port returns the port that the visitor used.
func port(host, proto string) string {
	if _, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return port
		}
	}
	if proto == "http" {
		return "80"
	}
	return "443"
}

// requestID returns the id that the program, the site's logs and our error pages have for a request. A trusted proxy in
// front may have sent it.
func requestID(w *response.Recorder, r *http.Request) string {
	if id := r.Header.Get(response.RequestField); w.Request == "" && goodID(id) {
		w.Request = id
	}
	return w.RequestID()
}

func goodID(id string) bool {
	for i := range len(id) {
		ch := id[i]
		if (ch < '0' || ch > '9') && (ch < 'A' || ch > 'Z') && (ch < 'a' || ch > 'z') && strings.IndexByte("-_.=+/:", ch) < 0 {
			return false
		}
	}
	return id != "" && len(id) <= 128
}

func address(remote string) string {
	if addr, _, err := net.SplitHostPort(remote); err == nil {
		return addr
	}
	return remote
}

// forwardedField returns the value of the Forwarded header (RFC 7239).
func forwardedField(addr, host, proto string) string {
	if strings.Contains(addr, ":") {
		addr = `"[` + addr + `]"` // RFC 7239 §6
	}
	return "for=" + addr + ";host=" + strconv.Quote(host) + ";proto=" + proto
}

// ours reports whether only Slipway may set a header. Underscores count as hyphens, as in the many programs that use
// CGI names, and so do dots, as in PHP. "Proxy" would become the CGI variable HTTP_PROXY.
func ours[T string | []byte](name T) bool {
	const prefix = "x-forwarded"
	if len(name) > len(prefix) && cgiEqual(name[:len(prefix)], prefix) {
		return strings.IndexByte("-_.", name[len(prefix)]) >= 0
	}
	return cgiEqual(name, prefix) || cgiEqual(name, "forwarded") || cgiEqual(name, "x-real-ip") || cgiEqual(name, "proxy") ||
		cgiEqual(name, requestField)
}

// requestField is [response.RequestField], for cgiEqual.
const requestField = "x-request-id"

// claimed are headers in which proxies name the visitor and that Slipway doesn't set.
var claimed = []string{
	"true-client-ip", "cf-connecting-ip", "cf-connecting-ipv6", "cf-pseudo-ipv4", "client-ip", "x-client-ip", "x-cluster-client-ip",
	"fastly-client-ip", "fly-client-ip", "x-azure-clientip", "x-azure-socketip", "x-appengine-user-ip", "cloudfront-viewer-address",
	"x-envoy-external-address", "x-original-forwarded-for", "x-remote-ip", "x-remote-addr",
}

// claims reports whether a header names the visitor: one of those, or [Config.VisitorHeader].
func claims[T string | []byte](p *Proxy, name T) bool {
	return p.visitorHeader != "" && cgiEqual(name, p.visitorHeader) ||
		slices.ContainsFunc(claimed, func(c string) bool { return cgiEqual(name, c) })
}

// DropClaims removes the headers in which proxies name the visitor. If a trusted proxy has sent the request, [Config.VisitorHeader]
// and the request's id stay, because that proxy sets them. It may pass the others on as visitors sent them.
func (p *Proxy) DropClaims(h http.Header, trusted bool) {
	kept := http.CanonicalHeaderKey(p.VisitorHeader)
	for name := range h {
		if (claims(p, name) || cgiEqual(name, requestField)) && !(trusted && (name == kept || name == response.RequestField)) {
			delete(h, name)
		}
	}
}

// cgiEqual reports whether name equals lower, ignoring case and treating underscores and dots as hyphens.
func cgiEqual[T string | []byte](name T, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i := range len(lower) {
		ch := name[i]
		switch {
		case ch >= 'A' && ch <= 'Z':
			ch |= 0x20
		case ch == '_', ch == '.':
			ch = '-'
		}
		if ch != lower[i] {
			return false
		}
	}
	return true
}

// appendWho appends the headers that identify the visitor.
func appendWho(b []byte, addr, proto, host, forwarded string) []byte {
	b = appendField(b, "X-Forwarded-For", addr)
	b = appendField(b, "X-Real-Ip", addr)
	b = appendField(b, "X-Forwarded-Proto", proto)
	b = appendField(b, "X-Forwarded-Host", host)
	b = appendField(b, "X-Forwarded-Port", port(host, proto))
	return appendField(b, "Forwarded", forwarded)
}
