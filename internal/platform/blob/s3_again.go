package blob

import (
	"io"
	"net/http"
	"sync"
)

// again repeats a bodyless request if the store answers 400 and closes the connection: some gateways misread an earlier
// request on the connection and send its error to the next one. It also makes sure that the body of a failed request
// isn't read after RoundTrip has returned.
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
	r = r.WithContext(r.Context()) // a copy, since the request belongs to its caller
	r.Body = b
	resp, err := a.next.RoundTrip(r)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		b.end()
	}
	return resp, err
}

// body is a request's body. net/http may still read it after it has given up the request (see [http.RoundTripper]),
// while the client rewinds it for the next attempt.
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

// end waits for a running read and prevents later ones.
func (b *body) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}
