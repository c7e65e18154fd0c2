package dashboard

import (
	"net/url"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
)

// wordpress creates a WordPress that isn't deployed and returns the path of its pages.
func (b *browser) wordpress(t *testing.T, name string) string {
	t.Helper()
	to := b.post("/new", "type", "wordpress", "step", "create", "name", name).to(t, "/sites/")
	return "/sites/" + strings.Split(to, "/")[2]
}

// Actions that overwrite a site's content require its typed name.
func TestOverwritingIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("ada@example.test", false)
	b := w.as("ada@example.test")
	staging, shop := b.wordpress(t, "Shop staging"), b.wordpress(t, "Shop")
	to := strings.TrimPrefix(shop, "/sites/")
	push := staging + "/wordpress/push"
	b.get(push+"?to="+url.QueryEscape(to)).want(t, 200, "Push Shop staging to Shop", "Type Shop to confirm", `data-test="push-differences"`).
		lacks(t, " checked")
	b.get(push+"?to=site_missing").want(t, 404)
	for _, typed := range []string{"", "Shop staging", "shop"} {
		p := b.post(push, "to", to, "database", "1", "confirm", typed).want(t, 422, `data-test="wrong-confirm"`, "nothing was pushed")
		if strings.Count(p.body, " checked") != 1 {
			t.Errorf("%d boxes are ticked again, want the one that was", strings.Count(p.body, " checked"))
		}
	}
	// With the correct name the request reaches the service, which refuses it because neither site is deployed.
	b.post(push, "to", to, "database", "1", "confirm", " Shop ").want(t, 409).lacks(t, "nothing was pushed")
	for path, form := range map[string][]string{
		"/wordpress/import":  {"url", "https://files.example.test/a.zip"},
		"/wordpress/replace": {"from", "a", "to", "b"},
	} {
		b.post(shop+path, form...).want(t, 422, "type Shop to confirm")
		b.post(shop+path, append(form, "confirm", "Shop")...).want(t, 409).lacks(t, "type Shop to confirm")
	}
	b.post(shop+"/wordpress/replace", "from", "a", "to", "b", "dry", "1").want(t, 409).lacks(t, "type Shop to confirm")
}

// A failed deployment isn't shown as the time of the last deployment.
func TestFailedIsNotDeployed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Shop")
	dep := w.deployment(s)
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.endTx(tx, dep, deployment.Failed, "npm ran out of luck", "") }))
	b := w.as("ada@example.test")
	b.get("/?view=list").want(t, 200, "Failed <time").lacks(t, "Deployed <time")
	w.live(s, w.deployment(s))
	b.get("/?view=list").want(t, 200, "Deployed <time")
}
