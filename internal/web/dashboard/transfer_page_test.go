package dashboard

import (
	"regexp"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

var shownCode = regexp.MustCompile(`data-test="value">([a-z0-9]{30,})<`)

// A site moves at once to a team whose owner may create sites there, otherwise with a code. The page first shows what
// will break, without changing anything, and requires the site's name. Only the receiver can accept.
func TestTransferPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	grace := w.user("grace@example.test", false)
	w.user("eve@example.test", false)
	ada, inGrace, eve := w.as("ada@example.test"), w.as("grace@example.test"), w.as("eve@example.test")
	s := w.site(u, "Harbor")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.CreateHookTx(t.Context(), tx, u.Owner, s.ID, site.NewHook{Name: "CMS"})
		return err
	}))
	owner := func() (o account.OwnerID) {
		t.Helper()
		must(t, w.db.QueryRow(t.Context(), `SELECT owner_id FROM open_sites WHERE id = $1`, s.ID).Scan(&o))
		return o
	}
	page := "/sites/" + string(s.ID)
	ada.get(page+"/settings").want(t, 200, page+"/transfer")
	ada.post("/teams/new", "name", "Acme").to(t, "/teams/acme/members")
	acme, err := w.dash.Teams.Named(t.Context(), w.db, "acme")
	must(t, err)

	ada.get(page+"/transfer?to=acme").want(t, 200, "1 deploy hook: new URLs", "1 site<", "so the site moves at once")
	if owner() != u.Owner {
		t.Fatal("the preview moved the site")
	}
	if p := ada.get(page + "/transfer?to=nobody"); !p.has("wrong-to") {
		t.Errorf("to a team that isn't there: %s", p)
	}
	pending := w.deployment(s) // during a deployment both pages say so and link to it
	for _, p := range []reply{ada.get(page + "/transfer?to=acme"), ada.post(page+"/transfer", "to", "acme", "confirm", "Harbor")} {
		p.want(t, p.status, "The site is being deployed", "Try again once its deployments have ended, or cancel them.", `href="`+page+"/deployments/"+string(pending)+`" data-test="problem-link"`)
		if p.has("wrong-to") || owner() != u.Owner {
			t.Errorf("moved, or the receiver is to blame: %s", p)
		}
	}
	ada.post(page+"/deployments/"+string(pending)+"/cancel").to(t, page+"/deployments/"+string(pending))
	if p := ada.post(page+"/transfer", "to", "acme", "confirm", "harbour"); p.status != 422 || !p.has("wrong-confirm") || owner() != u.Owner {
		t.Errorf("without its name: %s", p)
	}
	ada.post(page+"/transfer", "to", "acme", "confirm", "Harbor").to(t, page)
	if owner() != acme.Owner {
		t.Fatal("the site did not move")
	}

	// A transfer from the team to another user needs a code.
	p := ada.post(page+"/transfer", "to", "grace@example.test", "confirm", "Harbor").want(t, 200, `data-test="offer"`, "grace@example.test")
	m := shownCode.FindStringSubmatch(p.body)
	if m == nil || owner() != acme.Owner {
		t.Fatalf("offered: %s", p)
	}
	offer := regexp.MustCompile(`trf_[a-z0-9]+`).FindString(p.body)
	if p := eve.post("/transfers", "transfer_code", m[1]); p.status != 403 || owner() != acme.Owner {
		t.Errorf("another user accepts: %s", p)
	}
	ada.post(page+"/transfer/cancel", "transfer", offer).to(t, page+"/transfer")
	if p := inGrace.post("/transfers", "transfer_code", m[1]); p.status != 404 {
		t.Errorf("a canceled transfer: %s", p)
	}
	code := shownCode.FindStringSubmatch(ada.post(page+"/transfer", "to", "grace@example.test", "confirm", "Harbor").body)[1]
	inGrace.get("/transfers").want(t, 200, "your personal account")
	inGrace.post("/transfers", "transfer_code", code).to(t, page)
	if owner() != grace.Owner || inGrace.get(page).status != 200 || ada.get(page).status != 404 {
		t.Error("the receiver doesn't have the site alone")
	}
	if p := inGrace.post("/transfers", "transfer_code", code); p.status != 404 {
		t.Errorf("accepted twice: %s", p)
	}
	if log := ada.get("/teams/acme/audit").body; !strings.Contains(log, "audit-site.transferred") || !strings.Contains(log, "audit-site.received") {
		t.Error("the team's log doesn't say what came and went")
	}
}
