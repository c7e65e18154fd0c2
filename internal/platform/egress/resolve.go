package egress

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// resolve answers GET /resolve?name=… for children without a resolver: 204 if the name has an allowed address, 403 if
// it has only others, 404 if it doesn't exist, 502 if the lookup fails. It reveals no address.
func (p *Proxy) resolve(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if p.spend(512) != nil { // approximate size of the query and its response
		p.refuse(w, name, ErrQuota)
		return
	}
	if !hostname(name) {
		http.Error(w, "no such host", http.StatusNotFound)
		return
	}
	for _, port := range p.c.Ports {
		if _, ok := p.c.Direct[net.JoinHostPort(name, strconv.Itoa(port))]; ok {
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	if err := p.allowedHost(name); err != nil {
		p.refuse(w, name, err)
		return
	}
	switch err := p.e.resolves(r.Context(), name); {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, ErrBlocked):
		p.refuse(w, name, err)
	case notFound(err):
		http.Error(w, "no such host", http.StatusNotFound)
	default:
		http.Error(w, "host unreachable", http.StatusBadGateway)
	}
}

// hostname reports whether s is a host name (RFC 1123, plus underscores).
func hostname(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
	}
	_, err := netip.ParseAddr(s)
	return err != nil
}

func notFound(err error) bool {
	var e *net.DNSError
	return errors.As(err, &e) && e.IsNotFound
}

// resolves returns nil if a name has an address that [Egress.DialContext] would connect to on some port.
func (e *Egress) resolves(ctx context.Context, name string) error {
	ctx, done := context.WithTimeout(ctx, e.c.Connect)
	defer done()
	resolver := e.c.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	addrs, err := resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		for _, port := range append([]uint16{443}, e.c.OwnPorts...) {
			if e.permits(netip.AddrPortFrom(a, port)) {
				return nil
			}
		}
	}
	return &blockedError{name}
}
