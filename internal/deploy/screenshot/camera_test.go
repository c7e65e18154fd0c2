package screenshot

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Waiting for the browser ends with the context. When the browser is released, the next caller gets it.
func TestTurn(t *testing.T) {
	t.Parallel()
	var one turn
	give, err := one.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := one.take(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait ends with %v", err)
	}
	give()
	again, err := one.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
}

// shown accepts a page that a visitor without credentials gets after redirects, and only at the site's own hosts.
func TestShown(t *testing.T) {
	t.Parallel()
	edge := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		switch r.URL.Path {
		case "/":
			http.Redirect(w, r, "https://www.harbor.example/home", http.StatusFound)
		case "/secret":
			w.WriteHeader(http.StatusUnauthorized)
		case "/away":
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, "http://harbor.localhost/", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		case "/picture":
			w.Header().Set("Content-Type", "image/png")
		case "/program":
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusMethodNotAllowed)
			}
		}
	}))
	t.Cleanup(edge.Close)
	c := &Camera{Edge: strings.TrimPrefix(edge.URL, "https://")}
	hosts := []string{"harbor.localhost", "www.harbor.example"}
	for path, want := range map[string]string{
		"/": "https://www.harbor.example/home", "/program": "https://harbor.localhost:8443/program",
		"/secret": "status 401", "/away": errElsewhere.Error(), "/plain": errElsewhere.Error(), "/circle": errElsewhere.Error(), "/picture": "image/png",
	} {
		page, err := c.shown(t.Context(), "https://harbor.localhost:8443"+path, hosts)
		if strings.HasPrefix(want, "https://") && (err != nil || page != want) || !strings.HasPrefix(want, "https://") && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v, want %s", path, page, err, want)
		}
	}
}
