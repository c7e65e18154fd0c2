package dashboard

import (
	"testing"

	"slipway/internal/deploy/pushes"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

// The pages for routing, Git, backups and domains show each setting's effective value and whether it was set there.
func TestAppliesEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	b := w.as(u.Email)
	s := w.site(u, "Harbor")
	_, dom, _ := w.parts(u, s.ID)
	at := "/sites/" + string(s.ID)
	say := func(path string, want map[string]string) {
		t.Helper()
		page := b.get(at+path).want(t, 200)
		for name, text := range want {
			if got := effectiveOf(t, page.body, name); got != text {
				t.Errorf("%s says of %s %q, want %q", path, name, got, text)
			}
		}
	}
	say("/rules", map[string]string{"protection": "default", "access_log": "default"})
	say("/git", map[string]string{"previews": "default", "poll_minutes": "default", "watch": "All files default", "auto_deploy": "default"})
	say("/backups", map[string]string{"every": "default", "at": "default", "monthly": "default"})
	say("/domains/"+string(dom), map[string]string{"routing": "set here default: Serves the site"})
	previews, spa := pushes.All, "on"
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := w.dash.Git.UpdateTx(t.Context(), tx, u.Owner, s.ID, pushes.Patch{Previews: &previews}); err != nil {
			return err
		}
		_, err := w.dash.Sites.UpdateServingTx(t.Context(), tx, u.Owner, s.ID, site.ServingPatch{SinglePage: &spa}, "")
		return err
	}))
	b.post(at+"/backups/schedule", "every", "weekly", "at", "04:30", "daily", "7", "weekly", "4", "monthly", "3")
	say("/rules", map[string]string{"single_page": "set here"})
	say("/git", map[string]string{"previews": "set here default: Off"})
	say("/backups", map[string]string{"every": "set here default: Never", "at": "set here default: 03:00 UTC", "weekly": "default"})
}
