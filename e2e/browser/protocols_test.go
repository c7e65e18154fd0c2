//go:build browser

package browser

import (
	"context"
	"net"
	"strings"
	"testing"

	"slipway/e2e/world"
)

// A browser loads a site with its style sheet, script and image over HTTP/2, and over HTTP/3 if the operator has
// enabled it.
func TestProtocols(t *testing.T) {
	t.Parallel()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	w.Flags = append(w.Flags, "--http3")
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{World: w, t: t}
	h.commit("acme/quay", "The quay", map[string]string{
		"index.html": `<!doctype html><html lang="en"><title>Quay</title><link rel="icon" href="data:,"><link rel="stylesheet" href="style.css"><h1>Quay</h1><img src="mark.svg" alt=""><script src="app.js"></script>`,
		"style.css":  "h1 { color: rgb(1, 2, 3) }",
		"app.js":     "document.body.dataset.ran = 'yes'\n" + strings.Repeat("// a longer script\n", 5000),
		"mark.svg":   `<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><circle cx="4" cy="4" r="4"/></svg>`,
	})
	key, err := w.User(email)
	if err != nil {
		t.Fatal(err)
	}
	var created struct{ Data struct{ URL string } }
	if err := w.Call(t.Context(), key, "POST", "/sites", map[string]string{
		"name":       "quay",
		"type":       "static",
		"repository": "git.test/acme/quay",
		"branch":     "main",
	}, &created); err != nil {
		t.Fatal(err)
	}
	client, err := w.Browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := world.Until(ctx, 20e6, func() (bool, error) {
		resp, err := client.Get(created.Data.URL)
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return resp.StatusCode == 200, nil
	}); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(w.HTTPS)
	if err != nil {
		t.Fatal(err)
	}
	trust := h.trust([]string{"quay"})
	for protocol, quic := range map[string][]string{"h2": nil, "h3": {"quay.localhost:" + port}} {
		window := Start(t, Config{Name: "protocol-" + protocol, Trust: trust, QUIC: quic}).Window(created.Data.URL)
		window.Go("/")
		window.Sees("h1", "Quay")
		window.Until(
			"the script has run",
			`document.body.dataset.ran === 'yes' && getComputedStyle(document.querySelector('h1')).color === 'rgb(1, 2, 3)' && document.querySelector('img').naturalWidth === 8`,
		)
		var got []string
		window.Eval(
			`performance.getEntries().filter(e => e.nextHopProtocol && e.name.startsWith('https:')).map(e => e.nextHopProtocol)`,
			&got,
		)
		if len(got) != 4 || strings.Trim(strings.ReplaceAll(strings.Join(got, ""), protocol, ""), " ") != "" {
			t.Errorf("the page and its three files came over %q, not %s", got, protocol)
		}
	}
}
