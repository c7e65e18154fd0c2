package response

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"testing"
)

// Responses behind a password are cacheable only by the visitor's browser, whatever the response's Cache-Control.
func TestPrivate(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                   "private",
		"public, max-age=0, must-revalidate": "private, max-age=0, must-revalidate",
		"Public,S-MaxAge=600 , max-age=60":   "private, max-age=60",
		"no-store":                           "no-store",
		"public, no-store":                   "no-store",
		`private="set-cookie, x", no-cache="a, b"`:  `private, no-cache="a, b"`,
		`public, ext="\", s-maxage=1, ", immutable`: `private, ext="\", s-maxage=1, ", immutable`,
	} {
		w := httptest.NewRecorder()
		r := &Recorder{ResponseWriter: w, Private: true}
		if given != "" {
			r.Header().Set("Cache-Control", given)
		}
		r.Header().Set("Cdn-Cache-Control", "public")
		r.Header().Set("Surrogate-Control", "max-age=9")
		if len(given)%2 == 0 {
			r.WriteHeader(http.StatusNotModified)
		} else {
			_, _ = r.Write([]byte("x"))
		}
		h := w.Result().Header
		if got := h.Get("Cache-Control"); got != want || h.Get("Cdn-Cache-Control") != "" || h.Get("Surrogate-Control") != "" {
			t.Errorf("%q became %q, want %q; %v", given, got, want, h)
		}
	}
	w := httptest.NewRecorder()
	r := &Recorder{ResponseWriter: w}
	r.Header().Set("Cache-Control", "public")
	r.WriteHeader(200)
	if w.Result().Header.Get("Cache-Control") != "public" {
		t.Error("a public response was changed")
	}
}

// Informational responses carry only Link fields.
func TestInformational(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := &Recorder{ResponseWriter: w}
		r.Header().Set("Link", "</a.css>")
		r.Header().Set("Set-Cookie", "a=b; Domain=sites.test")
		r.WriteHeader(http.StatusEarlyHints)
		r.WriteHeader(http.StatusNoContent)
	}))
	defer srv.Close()
	var early http.Header
	req, err := http.NewRequestWithContext(withInformational(t.Context(), func(h http.Header) { early = h }), "GET", srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if early.Get("Link") == "" || early.Get("Set-Cookie") != "" || res.StatusCode != http.StatusNoContent {
		t.Errorf("%d after %v", res.StatusCode, early)
	}
}

func withInformational(ctx context.Context, hear func(http.Header)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		hear(http.Header(h))
		return nil
	}})
}
