package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"slipway/internal/platform/db"
	"slipway/internal/program/database"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/site"
)

// buttonNames returns the accessible names of the buttons in a page's main part, without those in dialogs.
func buttonNames(t *testing.T, p reply) (names []string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(p.body))
	must(t, err)
	var text func(n *html.Node) string
	text = func(n *html.Node) (s string) {
		if n.Type == html.TextNode {
			return n.Data
		}
		for c := range n.ChildNodes() {
			s += text(c)
		}
		return s
	}
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Data == "dialog" {
			return
		}
		if n.Data == "button" {
			name := strings.TrimSpace(text(n))
			for _, a := range n.Attr {
				if a.Key == "aria-label" {
					name = a.Val
				}
			}
			names = append(names, name)
		}
		for c := range n.ChildNodes() {
			walk(c)
		}
	}
	walk(root)
	return names
}

// On a page that lists several items, the accessible name of each button includes its item.
func TestButtonsNameTheirRow(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	ada := w.users["ada@example.test"]
	base := "/sites/" + string(s.ID)
	for i, name := range []string{"first", "second"} {
		_, _, err := w.dash.Accounts.CreateKey(t.Context(), ada.ID, account.NewKey{Name: name, Scopes: account.Scopes{account.All}})
		must(t, err)
		b.post(base+"/hooks", "name", name).to(t, base+"/hooks")
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			if _, err := w.dash.Databases.CreateTx(t.Context(), tx, ada.Owner, s.ID, database.NewDatabase{Name: name}); err != nil {
				return err
			}
			_, err := w.dash.Notify.CreateTx(t.Context(), tx, ada.Owner, notify.NewChannel{
				Kind: notify.Slack,
				Name: name,
				URL:  "https://hooks.example.test/" + name,
			})
			return err
		}))
		must(
			t,
			w.db.Admin(
				t.Context(),
				fmt.Sprintf(
					`INSERT INTO backups (id, owner_id, site_id, site_name, type, status, includes, note, size_bytes, stored_bytes, progress, manifest, checksum, base, then_delete, verified_at, error, created_at, completed_at, expires_at)
			VALUES ('bkp_%s', '%s', '%s', 'Blog', 'manual', 'completed', 'config,files,database', '', 2048, 0, 0, '%s', '', '', '', 1, '', %d, 1, 0)`,
					name,
					ada.Owner,
					s.ID,
					strings.Repeat("a", 64),
					db.Now().Add(time.Duration(-i)*time.Hour),
				),
			),
		)
	}
	for path, actions := range map[string][]string{
		"/account/keys":          {"Revoke"},
		"/account/notifications": {"Send test", "Disable", "Delete"},
		base + "/hooks":          {"Disable", "Edit", "Rotate URL", "Delete"},
		base + "/databases":      {"Rotate password", "Delete"},
		base + "/backups":        {"Restore", "Verify", "Delete"},
	} {
		names := buttonNames(t, b.get(path).want(t, 200))
		for _, action := range actions {
			seen := map[string]bool{}
			for _, name := range names {
				if name == action || strings.HasPrefix(name, action+": ") {
					seen[name] = true
				}
			}
			if len(seen) != 2 || seen[action] {
				t.Errorf("%s: buttons %q are called %v", path, action, seen)
			}
		}
	}
}

// Pages show internationalized domains in Unicode, and links to the site use the port that it is served on.
func TestPagesShowUnicodeDomains(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t, func(c *Config) {
		c.Sites = site.New(site.Config{DB: c.DB, Hooks: c.Webhooks, Domain: "sites.test", Port: 8443})
	})
	base := "/sites/" + string(s.ID)
	b.post(base+"/domains", "domain", "bücher.example").to(t, base+"/domains/dom_")
	must(t, w.db.Admin(t.Context(), "UPDATE domains SET status = 'active', is_primary = TRUE"))
	must(t, w.db.Admin(t.Context(), "UPDATE sites SET status = 'active'"))
	const shown, sent = "bücher.example", "xn--bcher-kva.example"
	for _, path := range []string{"/", "/?view=list", base, base + "/settings"} {
		body := b.get(path).want(t, 200, shown).body
		for _, hidden := range []string{">" + sent, "of " + sent} {
			if strings.Contains(body, hidden) {
				t.Errorf("%s shows %s", path, sent)
			}
		}
	}
	b.get(base).want(t, 200, `data-copy="https://`+sent+`:8443"`, `<p class="hero-host"><a href="https://`+sent+`:8443"`)
}
