package blob

import (
	"io"
	"net/http"
)

// again asks once more where an object store says that a request without a body was bad and
// ends the connection: some gateways say so of what they misread before it on the same
// connection, and the next request that is sent there gets the answer.
type again struct{ next http.RoundTripper }

func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusBadRequest || !resp.Close || r.Body != nil && r.Body != http.NoBody {
		return resp, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	resp.Body.Close()
	return a.next.RoundTrip(r)
}
