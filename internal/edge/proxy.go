package edge

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	"slipway/internal/release"
)

// What a forwarded request may cost.
const (
	proxyTime  = 60 * time.Second // for the whole exchange
	proxyBody  = 10 << 20         // bytes of the request
	proxyMost  = 512              // at a time, of all sites
	proxySite  = 32               // at a time, of one site
	proxyChain = 3                // through how many of our own rules a request may go
	viaName    = "slipway"
)

// proxied forwards a request to another host because a rule of the release says so and
// the site's settings allow the host.
func (e *Edge) proxied(w *recorder, r *http.Request, t *target, a *release.Answer) {
	to, err := url.Parse(a.Location)
	if err != nil || e.Out == nil || !t.serving.forwards(to) {
		page(w, r, pageMissing)
		return
	}
	if strings.Count(strings.Join(r.Header["Via"], ","), viaName) >= proxyChain {
		fail(w, r, http.StatusLoopDetected)
		return
	}
	if !e.forwarding.enter(t.site) {
		page(w, r, pageBusy)
		return
	}
	defer e.forwarding.leave(t.site)
	ctx, cancel := context.WithTimeout(r.Context(), proxyTime)
	defer cancel()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(proxyTime))
	_ = rc.SetWriteDeadline(time.Now().Add(proxyTime + 5*time.Second))
	host := hostname(r.Host)
	r = r.WithContext(ctx)
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, proxyBody)
	}
	p := &httputil.ReverseProxy{
		Transport: e.Out,
		ErrorLog:  slog.NewLogLogger(e.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to, to.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Connection", "Upgrade", "X-Real-Ip"} {
				p.Out.Header.Del(name)
			}
			if a.Auth != nil || t.protected() {
				p.Out.Header.Del("Authorization") // it was meant for us
				dropOurCookies(p.Out.Header)
			}
			p.SetXForwarded()
			p.Out.Header.Add("Via", "1.1 "+viaName)
		},
		ModifyResponse: func(res *http.Response) error {
			res.Header.Del("Alt-Svc")
			e.ownCookies(res.Header, host)
			if t.preview {
				res.Header["X-Robots-Tag"] = noindex
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			var tooLarge *http.MaxBytesError
			switch {
			case errors.As(err, &tooLarge):
				fail(w, r, http.StatusRequestEntityTooLarge)
			case errors.Is(err, context.DeadlineExceeded):
				fail(w, r, http.StatusGatewayTimeout)
			default:
				fail(w, r, http.StatusBadGateway) // why is the operator's business: addresses are not told
			}
		},
	}
	h := w.Header()
	for _, name := range []string{"X-Content-Type-Options", "X-Robots-Tag"} {
		h.Del(name) // the other host's answer has its own
	}
	p.ServeHTTP(w, r)
}

// ownCookies drops cookies that are set for more than the host that was asked: with the
// domain that all sites share, they would reach the neighbours.
func (e *Edge) ownCookies(h http.Header, host string) {
	if len(h["Set-Cookie"]) == 0 {
		return
	}
	h["Set-Cookie"] = slices.DeleteFunc(h["Set-Cookie"], func(line string) bool { return e.strayCookie(line, host) })
	if len(h["Set-Cookie"]) == 0 {
		delete(h, "Set-Cookie")
	}
}

// strayCookie reports whether a Set-Cookie field is for more than the host that was asked.
func (e *Edge) strayCookie(line, host string) bool {
	// Read as browsers do, who forgive spaces that http.ParseSetCookie doesn't.
	_, attributes, _ := strings.Cut(line, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, value, _ := strings.Cut(attribute, "=")
		domain := strings.ToLower(strings.TrimLeft(strings.TrimSpace(value), "."))
		if !strings.EqualFold(strings.TrimSpace(name), "domain") || domain == "" || domain == host {
			continue
		}
		shared := domain == e.SiteDomain || strings.HasSuffix(e.SiteDomain, "."+domain) || strings.HasSuffix(host, "."+e.SiteDomain)
		if shared || !strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}

// ourCookies is how the names of cookies begin that are the edge's own business.
const ourCookies = "__Host-slipway_"

// dropOurCookies takes them out of a request.
func dropOurCookies(h http.Header) {
	dropCookie(h, accessCookie)
	dropCookie(h, memberCookie)
}

// dropCookie takes one cookie out of a request.
func dropCookie(h http.Header, name string) {
	var rest []string
	for pair := range strings.SplitSeq(strings.Join(h["Cookie"], "; "), ";") {
		if k, _, _ := strings.Cut(strings.TrimSpace(pair), "="); k != name && k != "" {
			rest = append(rest, strings.TrimSpace(pair))
		}
	}
	delete(h, "Cookie")
	if len(rest) > 0 {
		h["Cookie"] = []string{strings.Join(rest, "; ")}
	}
}

// forwards reports whether a site's settings allow forwarding to an address.
func (s *serving) forwards(to *url.URL) bool {
	if s == nil || to.Host == "" || to.User != nil {
		return false
	}
	host := strings.ToLower(to.Host)
	if name, port, err := net.SplitHostPort(host); err == nil && (port == "443" && to.Scheme == "https" || port == "80" && to.Scheme == "http") {
		host = name
	}
	return slices.Contains(s.ProxyHosts, host)
}
