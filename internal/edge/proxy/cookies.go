package proxy

import (
	"net/http"
	"slices"
	"strings"
)

// ownCookies drops cookies that are set for more than the host that was asked: with the
// domain that all sites share, they would reach the neighbours.
func (p *Proxy) ownCookies(h http.Header, host string) {
	if len(h["Set-Cookie"]) == 0 {
		return
	}
	h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(line string) bool { return p.strayCookie(line, host) })
	if len(h["Set-Cookie"]) == 0 {
		delete(h, "Set-Cookie")
	}
}

// strayCookie reports whether a Set-Cookie field is for more than the host that was asked.
func (p *Proxy) strayCookie(line, host string) bool {
	// Read as browsers do, who forgive spaces that http.ParseSetCookie doesn't.
	_, attributes, _ := strings.Cut(line, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, value, _ := strings.Cut(attribute, "=")
		domain := strings.ToLower(strings.TrimLeft(strings.TrimSpace(value), "."))
		if !strings.EqualFold(strings.TrimSpace(name), "domain") || domain == "" || domain == host {
			continue
		}
		shared := domain == p.SiteDomain || strings.HasSuffix(p.SiteDomain, "."+domain) || strings.HasSuffix(host, "."+p.SiteDomain)
		if shared || !strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}
