package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func client(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(Config{Server: srv.URL, Token: func(context.Context) (string, error) { return "secret", nil }})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://Slipway.example/":      "https://slipway.example",
		"slipway.example":               "https://slipway.example",
		"localhost:8080":                "http://localhost:8080",
		"http://127.0.0.1:8080":         "http://127.0.0.1:8080",
		"http://[::1]:8080":             "http://[::1]:8080",
		"http://slipway.example":        "",
		"https://a@slipway.example":     "",
		"https://slipway.example/panel": "",
		"ftp://slipway.example":         "",
		"":                              "",
	} {
		got, err := Origin(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Origin(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

// A request whose connection breaks is retried with the same Idempotency-Key.
func TestTriesAgain(t *testing.T) {
	t.Parallel()
	var keys []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) < 3 {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, `{"id":"x"}`)
	})
	answer, err := c.Do(t.Context(), http.MethodPost, "/sites", map[string]string{"name": "x"})
	if err != nil || string(answer) != `{"id":"x"}` {
		t.Fatalf("%s, %v", answer, err)
	}
	if len(keys) != 3 || keys[0] == "" || slices.ContainsFunc(keys, func(k string) bool { return k != keys[0] }) {
		t.Errorf("keys %q, want one key three times", keys)
	}
}

// An error response is shown as the server's sentence and isn't retried.
func TestErrors(t *testing.T) {
	t.Parallel()
	calls := 0
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"error":"The site is stopped","details":"start it first","code":"site_stopped","requestId":"req_1"}`)
	})
	_, err := c.Do(t.Context(), http.MethodPost, "/sites/x/deploy", nil)
	var no *Error
	if !errors.As(err, &no) || no.Status != 409 || no.Code != "site_stopped" || err.Error() != "The site is stopped: start it first" {
		t.Errorf("%v", err)
	}
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

// The client waits once for a short rate limit. A longer one is returned as an error.
func TestWaitsForARateLimit(t *testing.T) {
	t.Parallel()
	calls := 0
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		if calls == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{}`)
	})
	var said strings.Builder
	c.c.Notice = &said
	if _, err := c.Do(t.Context(), http.MethodGet, "/sites", nil); err != nil || calls != 2 || said.String() != "Rate limit reached. Next try in 1 s.\n" {
		t.Errorf("%v after %d calls: %q", err, calls, said.String())
	}
	long := client(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	var no *Error
	if _, err := long.Do(t.Context(), http.MethodGet, "/sites", nil); !errors.As(err, &no) || no.Status != 429 {
		t.Errorf("%v", err)
	}
}

// A redirect isn't followed, so that the token isn't sent elsewhere.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var stolen string
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { stolen = r.Header.Get("Authorization") }))
	t.Cleanup(thief.Close)
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, thief.URL, http.StatusTemporaryRedirect)
	})
	_, err := c.Do(t.Context(), http.MethodGet, "/sites", nil)
	if err == nil || !strings.Contains(err.Error(), "redirects") || stolen != "" {
		t.Errorf("%v, and the other server got %q", err, stolen)
	}
}

func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"data":[{"page":%s}],"pagination":{"totalPages":3}}`, r.URL.Query().Get("page"))
	})
	all, err := c.List(t.Context(), "/sites?search=x")
	if err != nil || len(all) != 3 || string(all[2]) != `{"page":3}` {
		t.Errorf("%s, %v", all, err)
	}
}

// A stream that breaks is resumed after its last complete event, and ends at the event "end".
func TestStreamResumes(t *testing.T) {
	t.Parallel()
	var after []string
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		after = append(after, r.URL.Query().Get("after"))
		w.Header().Set("Content-Type", "text/event-stream")
		if len(after) == 1 {
			fmt.Fprint(w, ": hello\n\nid: 1\ndata: {\"n\":1}\n\nid: 2\ndata: {\"n\":")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler) // in the middle of the second event
		}
		fmt.Fprint(w, "id: 2\ndata: {\"n\":2}\n\nevent: end\ndata: {}\n\n")
	})
	var got []string
	err := c.Stream(t.Context(), "/x/logs", func(e Event) error { got = append(got, e.Name+string(e.Data)); return nil })
	if err != nil || !slices.Equal(got, []string{`{"n":1}`, `{"n":2}`, "end{}"}) || !slices.Equal(after, []string{"", "1"}) {
		t.Errorf("%q after %q: %v", got, after, err)
	}
}

// Only the beginning of a long error message is kept.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprintf(w, `{"error": %q, "details": %q}`, strings.Repeat("a", 1<<20), strings.Repeat("b", 1<<20))
	}))
	t.Cleanup(srv.Close)
	c, err := New(Config{Server: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/sites", nil); err == nil || len(err.Error()) > 2*maxSentence+100 || !strings.HasPrefix(err.Error(), "aaa") {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}
