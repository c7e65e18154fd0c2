package oauth_test

import (
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/oauth"
	"slipway/internal/tenant/webhook"
)

// The account that an app acts for and the account that registered it get one event when a grant begins and one when it
// ends. Other accounts get none.
func TestAppEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	hooks := w.Tell()
	registrar, stranger := w.user("grace@example.test"), w.user("eve@example.test")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) (err error) {
		w.app, _, err = w.CreateAppTx(t.Context(), tx, registrar.Owner, oauth.NewApp{Name: "Deployer", RedirectURIs: []string{callback}})
		return err
	}))
	for _, u := range []struct {
		owner account.OwnerID
		url   string
	}{
		{w.ada.Owner, "https://ada.test/"}, {registrar.Owner, "https://grace.test/"}, {stranger.Owner, "https://eve.test/"},
	} {
		must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := hooks.CreateTx(t.Context(), tx, u.owner, webhook.NewWebhook{URL: u.url, Events: []string{"app.authorized", "app.revoked"}})
			return err
		}))
	}
	got := w.tokens()
	c, err := w.Authenticate(t.Context(), got.Access, here)
	must(t, err)
	if _, err := w.Refresh(t.Context(), w.app, got.Refresh, ""); err != nil { // sends no event
		t.Error(err)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.RevokeGrantTx(t.Context(), tx, w.ada.Caller(), oauth.GrantID(c.Grant))
		return err
	}))
	rows, err := w.db.Query(t.Context(), `
		SELECT e.owner_id, e.name, e.body FROM webhook_events e JOIN webhook_deliveries d ON d.event_id = e.id ORDER BY e.id`)
	list, err := db.Collect(rows, err, func(r db.Scanner) (line [3]string, err error) { return line, r.Scan(&line[0], &line[1], &line[2]) })
	must(t, err)
	told := map[string]int{}
	for _, line := range list {
		told[line[0]+" "+line[1]]++
		if !strings.Contains(line[2], `"id":"`+c.Grant+`"`) || !strings.Contains(line[2], `"name":"Deployer"`) ||
			!strings.Contains(line[2], `"scopes":["sites:read","deployments:write"]`) {
			t.Errorf("the event says %s", line[2])
		}
	}
	for _, owner := range []account.OwnerID{w.ada.Owner, registrar.Owner} {
		for _, name := range []string{"app.authorized", "app.revoked"} {
			if n := told[string(owner)+" "+name]; n != 1 {
				t.Errorf("%s got %d events %s", owner, n, name)
			}
		}
	}
	if len(list) != 4 {
		t.Errorf("told: %v", told)
	}
}
