package stripe

import (
	"net/http"
	"net/url"
	"time"

	"slipway/internal/platform/egress"
)

// callTimeout is how long a call to Stripe may take.
const callTimeout = 20 * time.Second

// Client returns what calls Stripe, or the address that the operator named in its place.
func Client(out *egress.Egress, api string) *http.Client {
	c := out.Client(callTimeout)
	if u, err := url.Parse(api); err == nil && u.Host != "" {
		c = out.ClientTo(callTimeout, u.Host)
	}
	c.Transport.(*http.Transport).MaxIdleConnsPerHost = MostCalls // which are made again and again
	return c
}
