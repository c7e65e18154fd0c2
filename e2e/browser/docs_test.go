//go:build browser

package browser

import (
	"strings"
	"testing"
)

// The documentation can be read by everybody, in both themes and on a phone; examples are found, copied and tried from
// the page. What can be checked without a browser is checked on every page in internal/web/api.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	h := newHarness(t, "docs")
	w := h.window()
	key, err := h.User(email)
	if err != nil {
		t.Fatal(err)
	}
	// One of each kind, and the guides with the widest tables and code.
	for _, path := range []string{
		"/docs", "/docs?q=roll+back", "/docs/guides/operating", "/docs/guides/builds", "/docs/guides/sso", "/docs/sites", "/docs/account",
	} {
		w.Go(path)
		w.Sees("main h1")
		w.Look(strings.NewReplacer("/", "-", "?q=", "-", "+", "-").Replace(strings.Trim(path, "/")))
	}

	w.Go("/docs")
	w.Type("#q", "roll back")
	w.Press(".top form button")
	w.Click(`.ops a[href="/docs/sites#rollbackSite"]`)
	w.Until("the example is there", `location.hash === '#rollbackSite'`)
	if text := w.Copied(`section[aria-labelledby="rollbackSite"] .example .copy`); !strings.HasPrefix(text, "curl ") {
		t.Errorf("the copied example is %q", text)
	}
	w.Go("/docs/account#getAccount")
	try := `section[aria-labelledby="getAccount"] .try `
	w.Click(try + "button")
	w.Type(try+`input[type="password"]`, key)
	w.Click(try + "button:not(.copy)")
	w.Sees(try+"pre", "200", email)
}
