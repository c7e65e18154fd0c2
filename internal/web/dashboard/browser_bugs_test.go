//go:build browser

package dashboard

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/sites"
	"slipway/internal/wordpress/wordpress"
)

// The rules page tests a request with a country and shows the result, or why there is none, next to the input and the
// rules with their conditions.
func TestBrowserRouting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	s := w.site(w.user(ada, false), "Shop")
	wr, err := w.releases.Begin(t.Context(), "")
	must(t, err)
	for name, text := range map[string]string{"index.html": "home", "_redirects": "/shop /de 302 Country=de,at Language=de\n/old /new\n"} {
		must(t, wr.Add(t.Context(), name, "", strings.NewReader(text)))
	}
	rel, err := wr.Seal(t.Context())
	must(t, err)
	must(t, w.db.Admin(t.Context(), `UPDATE sites SET live_release = '`+string(rel.ID)+`' WHERE id = '`+string(s.ID)+`'`))
	b := w.window("routing", w.srv.URL)
	signIn(b, ada)
	b.Go("/sites/" + string(s.ID) + "/rules")
	b.Sees("main", "/shop", "country DE, AT", "language de")
	b.Type("#path", "/old")
	b.Press("@test-rules")
	b.Sees("@rule-answer", "/new")
	b.Type("#country", "DE") // this installation has no country database
	b.Press("@test-rules")
	b.Sees("@test-refused", "ountry")
	b.Until("what was typed is gone", `document.querySelector('#path').value === '/old' && document.querySelector('#country').value === 'DE'`)
	b.Sees("main", "/shop", "country DE, AT")
	b.Look("refused")
}

// A site whose first deployment failed isn't shown as deployed, on its card or in its row. While a deployment runs, the
// transfer page links to it.
func TestBrowserFailedAndBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	s := w.site(u, "Shop")
	w.fails(s)
	w.as(ada).post("/teams/new", "name", "Acme").to(t, "/teams/acme/members")
	b := w.window("failed", w.srv.URL)
	signIn(b, ada)
	b.Go("/?view=list")
	b.Sees("@list", "Failed", "npm run build")
	b.Until("a failed site is said to be deployed", `!document.querySelector('[data-test="list"]').innerText.includes('Deployed')`)
	pending := w.deployment(s)
	b.Go("/sites/" + string(s.ID) + "/transfer?to=acme")
	b.Sees("@problem", "The site is being deployed", "Try again once its deployments have ended, or cancel them.")
	b.Look("busy")
	b.Press("@problem-link")
	b.Until("the way doesn't lead to the deployment", `location.pathname === '`+sites.DeploymentPath(s.ID, pending)+`'`)
	w.end(pending, deployment.Canceled, "")
}

// The page where a clone was requested links to the cloned site. The backup behind the clone isn't labeled as one
// before an update.
func TestBrowserCloneLeads(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	byHand := w.as(ada)
	at := w.liveWordPress(u, byHand)
	byHand.get(at + "/state/follow") // otherwise the first visit reloads the page once its state is read
	id := strings.Split(at, "/")[2]
	clone := w.site(u, "Staging")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO operations (id, owner_id, site_id, kind, uniq, status, progress, step, message, error, result, created_at, completed_at)
			VALUES ('op_clone', $1, $2, 'site.clone', '', 'success', 1000, '', 'Cloned', '', $3, $4, $4)`, u.Owner, id, `{"siteId":"`+string(clone.ID)+`"}`, db.Now())
		return err
	}))
	b := w.window("clone", w.srv.URL)
	signIn(b, ada)
	b.Go(at)
	b.Press("@made-site")
	b.Until("it doesn't lead to the clone", `location.pathname === '/sites/`+string(clone.ID)+`'`)
	b.Sees("h1", "Staging")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Backups.CreateTx(
			t.Context(), tx, u.Owner, site.ID(id), backup.NewBackup{Type: backup.BeforeUpdate, Note: wordpress.CopyNote},
		)
		return err
	}))
	b.Go("/sites/" + id + "/backups")
	b.Sees("@backup", "Automatic: Copied to another site.")
	b.Until("it is called one before an update", `!document.querySelector('[data-test="backup"]').innerText.includes('Before update')`)
}

// Deleting a site with a backup leads to the deleted sites instead of a page that offers to deploy it. Once the backup
// is complete, the page shows without a reload that the site can be restored.
func TestBrowserDeletedWithBackup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const ada = "ada@example.test"
	s := w.site(w.user(ada, false), "Shop")
	w.activate(s)
	b := w.window("deleted", w.srv.URL)
	signIn(b, ada)
	b.Go("/sites/" + string(s.ID) + "/settings")
	b.Click("@open-delete-site")
	b.Type("#delete-site-confirm", "Shop")
	b.Click("@tick-backup")
	b.Press("@do-delete-site")
	b.Until("it doesn't lead to the deleted sites", `location.pathname === '/deleted'`)
	b.Sees("@flash", "Backing up Shop, then deleting it")
	b.Sees("@pending-deletion", "Shop")
	b.Misses("@deploy")
	must(t, w.db.Admin(t.Context(), `UPDATE sites SET deleted_at = 1 WHERE id = '`+string(s.ID)+`'`))
	must(t, w.db.Admin(t.Context(), `UPDATE backups SET status = 'completed', completed_at = 1 WHERE site_id = '`+string(s.ID)+`'`))
	b.Sees("@deleted-site", "Shop") // the page reloads itself
	b.Misses("@pending-deletion")
	b.Click("@open-restore-*")
	b.Sees("@what-happens", "Creates a site with the settings")
	b.Look("restore")
}

// Search and replace, and a restore over a live site, require the site's name and say so if it is wrong.
func TestBrowserOverwrites(t *testing.T) {
	t.Parallel()
	var p blog
	w := p.world(t)
	const ada = "ada@example.test"
	u := w.user(ada, false)
	byHand := w.as(ada)
	at := w.liveWordPress(u, byHand)
	byHand.get(at + "/state/follow") // otherwise the first visit reloads the page
	base := strings.TrimSuffix(at, "/wordpress")
	id := strings.Split(at, "/")[2]
	byHand.post(base+"/backups", "note", "before the party").want(t, 303)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE backups SET status = 'completed', completed_at = $2 WHERE site_id = $1`, id, db.Now())
		return err
	}))
	before := w.operations(u, id)
	b := w.window("overwrites", w.srv.URL)
	signIn(b, ada)

	b.Go(at)
	b.Type("#f-from", "Harbor")
	b.Type("#f-to", "Port")
	b.Expect(http.StatusUnprocessableEntity)
	b.Press("@wordpress-replace")
	b.Sees("@problem", "Nothing was replaced", "type Press to confirm")
	b.Type("#f-replace-confirm", "press")
	b.Expect(http.StatusUnprocessableEntity)
	b.Press("@wordpress-replace")
	b.Sees("@problem", "Nothing was replaced", "type Press to confirm")

	b.Go(base + "/backups")
	b.Click(`[data-test^="open-restore-"]`)
	b.Sees("@what-happens")
	b.Look("restore dialog")
	b.Expect(http.StatusUnprocessableEntity)
	b.Press(`[data-test^="do-restore-"]`)
	b.Sees("@problem", "Nothing was restored")
	if after := w.operations(u, id); !slices.Equal(before, after) {
		t.Errorf("without the name it began %q, before %q", after, before)
	}
}
