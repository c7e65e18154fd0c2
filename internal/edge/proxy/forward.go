package proxy

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

	"slipway/internal/edge/access"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/response"
)

// Limits of forwarded requests.
const (
	proxyTime  = 60 * time.Second // for the whole exchange
	proxyBody  = 10 << 20         // bytes of the request body
	proxyMost  = 512              // concurrent requests of all sites
	proxyOwner = 128              // concurrent requests of one owner's sites
	proxySite  = 32               // concurrent requests of one site
	proxyChain = 3                // how many of our own forwarding rules a request may pass through
	viaName    = "slipway"
)

// Rule is a site's rule that forwards a request.
type Rule struct {
	To        string   // target URL
	Hosts     []string // hosts that the site's settings allow
	Preview   bool     // the visitor uses a preview address
	Protected bool     // the visitor gave us a password or signed in
}

// Forward forwards a request to another host, as a rule of the release says, if the site's settings allow the host.
func (p *Proxy) Forward(w *response.Recorder, r *http.Request, rule Rule) {
	to, err := url.Parse(rule.To)
	if err != nil || p.Out == nil || !allows(rule.Hosts, to) {
		response.Page(w, r, response.PageMissing)
		return
	}
	if strings.Count(strings.Join(r.Header["Via"], ","), viaName) >= proxyChain {
		response.Fail(w, r, http.StatusLoopDetected)
		return
	}
	done, ok := p.forwarding.Try(w.Who(r))
	if !ok {
		response.Page(w, r, response.PageOverloaded)
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(r.Context(), proxyTime)
	defer cancel()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(proxyTime))
	_ = rc.SetWriteDeadline(time.Now().Add(proxyTime + 5*time.Second))
	host := fastpath.Hostname(r.Host)
	r = r.WithContext(ctx)
	if r.Body != nil {
		r.Body = http.MaxBytesReader(w, r.Body, proxyBody)
	}
	proxy := &httputil.ReverseProxy{
		Transport: p.Out,
		ErrorLog:  slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
		Rewrite: func(q *httputil.ProxyRequest) {
			q.Out.URL, q.Out.Host = to, to.Host
			for _, name := range []string{
				"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Connection", "Upgrade",
				"X-Real-Ip",
			} {
				q.Out.Header.Del(name)
			}
			if rule.Protected {
				q.Out.Header.Del("Authorization") // meant for us
				access.DropCookies(q.Out.Header)
			}
			q.SetXForwarded()
			q.Out.Header.Add("Via", "1.1 "+viaName)
		},
		ModifyResponse: func(res *http.Response) error {
			if !response.Fits(res.Header) {
				return errHeader
			}
			res.Header.Del("Alt-Svc")
			p.ownCookies(res.Header, host)
			if rule.Preview {
				res.Header["X-Robots-Tag"] = response.Noindex
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, r *http.Request, err error) {
			var tooLarge *http.MaxBytesError
			switch {
			case errors.As(err, &tooLarge):
				response.Fail(w, r, http.StatusRequestEntityTooLarge)
			case errors.Is(err, context.DeadlineExceeded):
				response.Fail(w, r, http.StatusGatewayTimeout)
			default:
				response.Fail(w, r, http.StatusBadGateway) // don't reveal addresses; only the operator sees the reason
			}
		},
	}
	h := w.Header()
	for _, name := range []string{"X-Content-Type-Options", "X-Robots-Tag"} {
		h.Del(name) // the other host sends its own
	}
	proxy.ServeHTTP(w, r)
}

// allows reports whether the site's settings allow a URL's host.
func allows(hosts []string, to *url.URL) bool {
	if to.Host == "" || to.User != nil {
		return false
	}
	host := strings.ToLower(to.Host)
	if name, port, err := net.SplitHostPort(host); err == nil &&
		(port == "443" && to.Scheme == "https" || port == "80" && to.Scheme == "http") {
		host = name
	}
	return slices.Contains(hosts, host)
}
