package nodes

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// The world with two nodes, which make test-nodes uses for the tests of programs and WordPress, works: each request
// goes to either node, from the world's clients and from any connection to its addresses, and both nodes are killed and
// started together.
func TestWorldOfTwoNodes(t *testing.T) {
	t.Setenv(world.NodesVar, "2")
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.Log(4000))
		}
	})
	key, err := w.User("ada@example.test")
	if err == nil {
		err = w.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "page")
	if err := world.WriteFiles(dir, map[string]string{"index.html": "a page"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("acme/page", "main", dir, "content"); err != nil {
		t.Fatal(err)
	}
	var made struct{ Data struct{ ID, URL string } }
	err = w.Call(t.Context(), key, "POST", "/sites", map[string]any{"name": "page", "type": "static", "repository": "git.test/acme/page"}, &made)
	if err != nil {
		t.Fatal(err)
	}
	browser, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	defer browser.CloseIdleConnections()
	shows := func(c *http.Client) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		err := world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
			a, err := w.Site(ctx, c, world.Request{Method: "GET", URL: made.Data.URL})
			return err == nil && a.Status == 200 && string(a.Body) == "a page", errors.Join(err, a.Err())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	nodes := world.Everywhere(browser)
	if len(nodes) != 2 || w.Nodes() != 2 {
		t.Fatalf("%d clients of %d nodes", len(nodes), w.Nodes())
	}
	for range 2 {
		for _, c := range append(nodes, browser, world.Somewhere(browser)) {
			shows(c)
		}
		out, err := w.CLI("", "node", "list")
		if err != nil || strings.Count(out, " up ") != 2 {
			t.Errorf("%v: %s", err, out)
		}
		// Requests from a client that isn't the world's.
		for range 4 {
			if a, err := world.Read(http.Get("http://" + w.Listen + "/readyz")); err != nil || a.Status != 200 {
				t.Errorf("%d %v", a.Status, err)
			}
			http.DefaultClient.CloseIdleConnections()
		}
		w.Kill()
		if a, err := world.Read(http.Get("http://" + w.Listen + "/readyz")); err == nil {
			t.Errorf("killed, it answers %d", a.Status)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
