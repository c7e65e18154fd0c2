package guard

import (
	"net/http"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/fair"
)

// Attempts to log in, or to be sent a new password, within five minutes; and requests of
// XML-RPC, each of which may hold one.
const (
	loginWindow     = 5 * time.Minute
	loginsOfVisitor = 10
	loginsOfNetwork = 50
	loginsOfSite    = 200
	remoteMore      = 5 // times as many requests of XML-RPC, which apps make for other things too
)

// throttle bounds how often passwords are tried.
type throttle struct{ logins, remote *fair.Attempts }

func newThrottle() throttle {
	times := func(n int) *fair.Attempts {
		// share: total every site with sign-ins in the last window; owner of each site 200 tries, one network 50, one visitor 10; five times as many of XML-RPC; edge 429 with Retry-After
		return fair.NewAttempts(fair.Limit{
			Window:  loginWindow,
			Visitor: n * loginsOfVisitor,
			Network: n * loginsOfNetwork,
			Site:    n * loginsOfSite,
		})
	}
	return throttle{times(1), times(remoteMore)}
}

// take counts a request that may try a password, and returns how long to wait where it is one
// too many.
func (t throttle) take(site id.Site, r *http.Request) time.Duration {
	if r.Method != http.MethodPost {
		return 0
	}
	switch visitor := fair.Visitor(r.RemoteAddr); script(r.URL.Path) {
	case "/wp-login.php":
		return t.logins.Try(string(site), visitor, time.Now())
	case "/xmlrpc.php":
		return t.remote.Try(string(site), visitor, time.Now())
	}
	return 0
}
