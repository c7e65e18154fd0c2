package dashboard

import (
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/site"
)

// A guest of one site can't read other repositories with the team's stored credentials: another repository needs its
// own credential.
func TestGuestsBringTheirCredential(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	page := "/sites/" + string(w.shop.ID) + "/settings"
	now := func() site.Site {
		t.Helper()
		s, err := w.dash.Sites.Get(t.Context(), w.acme.Owner, w.shop.ID)
		must(t, err)
		return s
	}
	guest := w.in["guest"]
	w.in["ada"].post(page, "part", "credential", "token", "the team's").to(t, page)
	p := guest.post(page, "part", "source", "repository", "git.test/acme/private", "branch", "main")
	if p.status != 403 || !strings.Contains(p.body, "Another repository needs a credential of its own") || now().Repository != w.shop.Repository {
		t.Errorf("a guest points the site at %s: %s", now().Repository, p)
	}
	guest.post(page, "part", "source", "repository", w.shop.Repository, "branch", "next").to(t, page)
	guest.get(page).want(t, 200, "another repository needs a credential of its own")
	if p := w.in["ada"].get(page); strings.Contains(p.body, "another repository needs") {
		t.Error("an owner is asked for a credential")
	}
	guest.post(page, "part", "source", "repository", "git.test/acme/private", "branch", "main", "token", "the guest's").to(t, page)
	if s := now(); s.Repository != "git.test/acme/private" || !s.Credential {
		t.Errorf("with a credential: %s, %t", s.Repository, s.Credential)
	}
	w.in["developer"].post(page, "part", "source", "repository", "git.test/acme/site", "branch", "main").to(t, page)
	if s := now(); s.Repository != "git.test/acme/site" {
		t.Errorf("a developer of the whole team: %s", s.Repository)
	}
}

// A contributor's preview gets only the variables that are for previews alone. A developer's preview gets all.
func TestContributorsDeployWithoutVariables(t *testing.T) {
	t.Parallel()
	w := newAgency(t)
	w.in["ada"].post("/sites/"+string(w.shop.ID)+"/settings", "part", "source", "repository", w.shop.Repository, "branch", "main")
	for name, limited := range map[string]bool{"contributor": true, "developer": false} {
		p := w.in[name].post("/sites/"+string(w.shop.ID)+"/deploy", "branch", "feature-"+name)
		id := p.header.Get("Location")
		x, err := w.dash.Deployments.ByID(t.Context(), w.dash.DB, deployment.ID(id[strings.LastIndexByte(id, '/')+1:]))
		if err != nil || x.Target != deployment.Preview || x.LimitedEnv != limited {
			t.Errorf("%s: limited: %t, %v", name, x.LimitedEnv, err)
		}
	}
}
