package egress

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
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
	select {
	case p.lookups <- struct{}{}:
		defer func() { <-p.lookups }()
	case <-r.Context().Done():
		return
	}
	if kind := r.URL.Query().Get("type"); kind != "" {
		p.records(w, r, name, kind)
		return
	}
	if err := p.e.resolves(r.Context(), name); err != nil {
		p.unresolved(w, name, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// unresolved answers that a lookup failed.
func (p *Proxy) unresolved(w http.ResponseWriter, name string, err error) {
	if notFound(err) {
		http.Error(w, "no such host", http.StatusNotFound)
		return
	}
	if errors.Is(err, context.Canceled) {
		return // nobody waits
	}
	p.refuse(w, name, err)
}

// records answers GET /resolve?name=…&type=SRV with the name's records of a type, as a DNS message: 204 if the name has
// none.
func (p *Proxy) records(w http.ResponseWriter, r *http.Request, name, kind string) {
	ctx, done := context.WithTimeout(r.Context(), p.e.c.Connect)
	defer done()
	list, err := p.e.records(ctx, name, kind)
	if len(list) > 0 {
		err = nil // of other records, which are malformed
	}
	if notFound(err) {
		// The resolver doesn't say whether the name or only the type is missing.
		if e := p.e.resolves(ctx, name); e == nil || errors.Is(e, ErrBlocked) {
			err = nil
		}
	}
	var body []byte
	if err == nil && len(list) > 0 {
		m := dnsmessage.Message{Answers: list}
		body, err = m.Pack()
	}
	switch {
	case err != nil:
		p.unresolved(w, name, err)
	case p.spend(len(body)) != nil:
		p.refuse(w, name, ErrQuota)
	case body == nil:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "application/dns-message")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
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

// maxTargets caps the hosts that one answer names.
const maxTargets = 8

// records looks up a name's records of a type. Hosts that only the operator's network knows aren't listed.
func (e *Egress) records(ctx context.Context, name, kind string) ([]dnsmessage.Resource, error) {
	r, full := e.resolver(), name+"."
	owner, err := dnsmessage.NewName(full)
	if err != nil {
		return nil, err
	}
	var list []dnsmessage.Resource
	add := func(body dnsmessage.ResourceBody) {
		head := dnsmessage.ResourceHeader{Name: owner, Class: dnsmessage.ClassINET}
		list = append(list, dnsmessage.Resource{Header: head, Body: body})
	}
	switch kind {
	case "TXT":
		if err := e.foreign(ctx, name); err != nil {
			return nil, err
		}
		texts, err := r.LookupTXT(ctx, full)
		for _, t := range texts {
			add(&dnsmessage.TXTResource{TXT: pieces(t)})
		}
		return list, err
	case "SRV":
		_, found, err := r.LookupSRV(ctx, "", "", full)
		for _, s := range offered(ctx, e, found, func(s *net.SRV) string { return s.Target }) {
			if to, err := dnsmessage.NewName(s.Target); err == nil {
				add(&dnsmessage.SRVResource{Priority: s.Priority, Weight: s.Weight, Port: s.Port, Target: to})
			}
		}
		return list, err
	case "MX":
		found, err := r.LookupMX(ctx, full)
		for _, m := range offered(ctx, e, found, func(m *net.MX) string { return m.Host }) {
			if to, err := dnsmessage.NewName(m.Host); err == nil {
				add(&dnsmessage.MXResource{Pref: m.Pref, MX: to})
			}
		}
		return list, err
	case "NS":
		found, err := r.LookupNS(ctx, full)
		for _, n := range offered(ctx, e, found, func(n *net.NS) string { return n.Host }) {
			if to, err := dnsmessage.NewName(n.Host); err == nil {
				add(&dnsmessage.NSResource{NS: to})
			}
		}
		return list, err
	case "CNAME":
		if err := e.resolves(ctx, name); err != nil {
			return nil, err
		}
		found, err := r.LookupCNAME(ctx, full)
		if to, e := dnsmessage.NewName(found); e == nil && found != "" && !strings.EqualFold(found, full) {
			add(&dnsmessage.CNAMEResource{CNAME: to})
		}
		return list, err
	case "PTR":
		a, ok := reversed(name)
		if !ok || !Public(a) {
			return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
		}
		found, err := r.LookupAddr(ctx, a.String())
		for _, n := range found[:min(len(found), maxTargets)] {
			if to, err := dnsmessage.NewName(n); err == nil {
				add(&dnsmessage.PTRResource{PTR: to})
			}
		}
		return list, err
	}
	return nil, nil
}

// pieces cuts a text into the strings of a TXT record.
func pieces(text string) []string {
	const most = 255
	var out []string
	for len(text) > most {
		out, text = append(out, text[:most]), text[most:]
	}
	return append(out, text)
}

// offered returns the records whose hosts may be reached. "." names no host (RFC 2782, RFC 7505).
func offered[T any](ctx context.Context, e *Egress, list []T, host func(T) string) (out []T) {
	for _, x := range list[:min(len(list), maxTargets)] {
		if name := strings.TrimSuffix(host(x), "."); name == "" || e.resolves(ctx, name) == nil {
			out = append(out, x)
		}
	}
	return out
}

// maxParents caps the zones that are looked for above a name.
const maxParents = 6

// foreign reports whether a name lies in a zone that only the operator's network knows: none of its name servers has an
// address that may be reached. A name without a zone that says so isn't.
func (e *Egress) foreign(ctx context.Context, name string) error {
	for range maxParents {
		servers, err := e.resolver().LookupNS(ctx, name+".")
		if err != nil && !notFound(err) {
			return err
		}
		if len(servers) > 0 {
			if len(offered(ctx, e, servers, func(n *net.NS) string { return n.Host })) == 0 {
				return &blockedError{name}
			}
			return nil
		}
		_, above, ok := strings.Cut(name, ".")
		if !ok {
			return nil
		}
		name = above
	}
	return nil
}

// reversed returns the address that a name below in-addr.arpa or ip6.arpa is for (RFC 1035, RFC 3596).
func reversed(name string) (netip.Addr, bool) {
	labels := strings.Split(strings.ToLower(name), ".")
	slices.Reverse(labels)
	if len(labels) < 2 || labels[0] != "arpa" {
		return netip.Addr{}, false
	}
	var text string
	switch digits := labels[2:]; {
	case labels[1] == "in-addr":
		text = strings.Join(digits, ".")
	case labels[1] == "ip6" && len(digits) == 32:
		for i, d := range digits {
			if i > 0 && i%4 == 0 {
				text += ":"
			}
			text += d
		}
	}
	a, err := netip.ParseAddr(text)
	return a, err == nil
}

// resolves returns nil if a name has an address that [Egress.DialContext] would connect to on some port.
func (e *Egress) resolves(ctx context.Context, name string) error {
	ctx, done := context.WithTimeout(ctx, e.c.Connect)
	defer done()
	addrs, err := e.resolver().LookupNetIP(ctx, "ip", name)
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

func (e *Egress) resolver() *net.Resolver { return cmp.Or(e.c.Resolver, net.DefaultResolver) }
