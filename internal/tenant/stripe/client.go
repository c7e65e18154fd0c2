package stripe

import (
	"net/http"
	"net/url"
	"time"

	"slipway/internal/platform/egress"
)

// callTimeout limits a call to Stripe.
const callTimeout = 20 * time.Second

// Client returns an HTTP client for Stripe, or for the operator's alternative address.
func Client(out *egress.Egress, api string) *http.Client {
	c := out.Client(callTimeout)
	if u, err := url.Parse(api); err == nil && u.Host != "" {
		c = out.ClientTo(callTimeout, u.Host)
	}
	c.Transport.(*http.Transport).MaxIdleConnsPerHost = MostCalls // reuse connections between calls
	return c
}
