package blob

import (
	"io"
	"net/http"
	"sync"
)

// again asks once more where an object store says that a request without a body was bad and
// ends the connection: some gateways say so of what they misread before it on the same
// connection, and the next request that is sent there gets the answer. The body of a request
// that has failed is not read any more once RoundTrip has returned.
type again struct{ next http.RoundTripper }

func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		return a.send(r)
	}
	resp, err := a.next.RoundTrip(r)
	if err != nil || resp.StatusCode != http.StatusBadRequest || !resp.Close {
		return resp, err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	resp.Body.Close()
	return a.next.RoundTrip(r)
}

func (a again) send(r *http.Request) (*http.Response, error) {
	b := &body{ReadCloser: r.Body}
	r = r.WithContext(r.Context()) // a copy: a request is its caller's
	r.Body = b
	resp, err := a.next.RoundTrip(r)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		b.end()
	}
	return resp, err
}

// body is a request's body. net/http may read one after it has given up the request
// (net/http, RoundTripper), while the client goes back to its beginning for the next attempt.
type body struct {
	io.ReadCloser
	mu    sync.Mutex
	ended bool
}

func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// end waits for a read that is under way, and lets none come after it.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
