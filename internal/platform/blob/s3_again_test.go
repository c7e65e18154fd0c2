package blob

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A transport that has given up a request may still read its body while the client retries with the same body.
func TestFailedRequestLeavesItsBody(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() (*http.Response, error){
		"no answer": func() (*http.Response, error) { return nil, errors.New("gone") },
		"busy":      func() (*http.Response, error) { return &http.Response{StatusCode: 503, Body: http.NoBody}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.NewReader("the whole of it")
			var late io.Reader
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://store.test/", io.NopCloser(text))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := again{roundTrip(func(r *http.Request) (*http.Response, error) {
				late = r.Body
				if _, err := io.ReadFull(r.Body, make([]byte, 3)); err != nil {
					t.Error(err)
				}
				return answer()
			})}.RoundTrip(r)
			if err == nil {
				resp.Body.Close()
			}
			if _, err := text.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if n, err := late.Read(make([]byte, 3)); n > 0 || err == nil {
				t.Errorf("read %d bytes after the request had failed, %v", n, err)
			}
			if got, err := io.ReadAll(text); err != nil || string(got) != "the whole of it" {
				t.Errorf("the next attempt sends %q, %v", got, err)
			}
		})
	}
}
