package wordpress

import "net/http"

// server is an HTTP transport that answers in place of the network.
type server func(r *http.Request) (*http.Response, error)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s(r)
	if resp != nil {
		resp.Request = r
		if resp.Header == nil {
			resp.Header = http.Header{}
		}
	}
	return resp, err
}
