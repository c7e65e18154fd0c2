package proxy

import (
	"net/http"
	"slices"
	"strings"
)

// ownCookies drops cookies for more than the requested host: cookies for the sites' common domain would reach other
// sites.
func (p *Proxy) ownCookies(h http.Header, host string) {
	if len(h["Set-Cookie"]) == 0 {
		return
	}
	h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(line string) bool { return p.strayCookie(line, host) })
	if len(h["Set-Cookie"]) == 0 {
		delete(h, "Set-Cookie")
	}
}

// strayCookie reports whether a Set-Cookie value applies to more than the requested host.
func (p *Proxy) strayCookie(line, host string) bool {
	// Parse as browsers do, which accept spaces that http.ParseSetCookie rejects.
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
