package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/limits"
	"slipway/internal/web/control"
)

// While PostgreSQL doesn't respond, each request soon gets a 503 with Retry-After, including those waiting for a
// connection. Once it responds, requests succeed.
func TestStalledDatabase(t *testing.T) {
	t.Parallel()
	url, gate := dbtest.Through(t, dbtest.URL(t))
	w := newWorldOn(t, func(t testing.TB, with ...func(*db.Config)) *db.DB {
		return dbtest.Open(t, url, append(with, func(c *db.Config) { c.Wait = 10 * time.Second })...)
	}, limits.Settings{})
	server := httptest.NewServer(control.New(control.Config{}).Bounded(w.srv.Config.Handler))
	t.Cleanup(server.Close)
	_, key := w.user("ada@example.test")
	ask := func(ctx context.Context, method string) (*http.Response, error) {
		body := ""
		if method == http.MethodPost {
			body = `{"name": "blog", "type": "static", "repository": "git.test/acme/blog"}`
		}
		req, err := http.NewRequestWithContext(ctx, method, server.URL+"/api/v1/sites", strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			res.Body.Close()
		}
		return res, err
	}
	if res, err := ask(t.Context(), "GET"); err != nil || res.StatusCode != 200 {
		t.Fatal(res, err)
	}
	gate.Silence(true)
	var all sync.WaitGroup
	for n := range 60 {
		all.Go(func() {
			method := []string{"GET", "GET", "POST"}[n%3]
			begun := time.Now()
			res, err := ask(t.Context(), method)
			switch took := time.Since(begun); {
			case err != nil:
				t.Error(err)
			case res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "":
				t.Errorf("%s is %s with Retry-After %q", method, res.Status, res.Header.Get("Retry-After"))
			case took > 18*time.Second: // 8 s, with a margin for a busy machine
				t.Errorf("%s is answered after %s", method, took)
			}
		})
	}
	all.Wait()
	gate.Heal()
	wait.Until(t, "requests are answered again", func() bool {
		res, err := ask(t.Context(), "GET")
		return err == nil && res.StatusCode == 200
	})
}
