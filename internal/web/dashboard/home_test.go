package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
)

func TestHome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	b := w.as("ada@example.test")
	if p := b.get("/"); !p.has("empty") {
		t.Fatal(p)
	}
	blog, shop := w.site(ada, "My blog"), w.site(ada, "Shop")
	if _, err := w.dash.Deployments.Trigger(t.Context(), ada.Owner, shop.ID, deploy.Trigger{
		Cause: deployment.ByDashboard,
		Title: "Spring sale",
	}); err != nil {
		t.Fatal(err)
	}
	w.activate(shop)
	has := func(path string, want ...site.Site) {
		t.Helper()
		p := b.get(path)
		for _, s := range []site.Site{blog, shop} {
			wanted := false
			for _, x := range want {
				wanted = wanted || x.ID == s.ID
			}
			if p.has("card-"+string(s.ID)) != wanted {
				t.Errorf("%s: %s shown: %v, want %v", path, s.Name, !wanted, wanted)
			}
		}
	}
	has("/", blog, shop)
	has("/?q=BLO", blog)
	has("/?q=acme", blog, shop)
	has("/?q=nothing")
	has("/?status=active", shop)
	has("/?status=pending&q=shop")
	has("/?status=nonsense&page=x", blog, shop)
	has("/?page=2")
	if p := b.get("/"); !strings.Contains(p.body, "Spring sale") || !p.has("status-active") {
		t.Error(p)
	}
	if p := w.as("eve@example.test").get("/"); !p.has("empty") || p.has("card-"+string(blog.ID)) {
		t.Error("Eve sees Ada's sites")
	}
}

func (w *world) activate(s site.Site) {
	w.t.Helper()
	if err := w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.ActivateTx(w.t.Context(), tx, s.ID, deployment.ID(db.NewID("dep")), "rel", "static")
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
}

// withIcon publishes a page and these files as the site's live release, and returns the release.
func (w *world) withIcon(s site.Site, files map[string]string) string {
	w.t.Helper()
	wr, err := w.releases.Begin(w.t.Context(), "")
	must(w.t, err)
	must(w.t, wr.Add(w.t.Context(), "index.html", "", strings.NewReader(`<link rel=icon href=/i.png>`)))
	for name, text := range files {
		must(w.t, wr.Add(w.t.Context(), name, "", strings.NewReader(text)))
	}
	rel, err := wr.Seal(w.t.Context())
	must(w.t, err)
	must(w.t, w.db.Admin(w.t.Context(), `UPDATE sites SET live_release = '`+string(rel.ID)+`' WHERE id = '`+string(s.ID)+`'`))
	return string(rel.ID)
}

// stream opens a live part and returns its events one by one.
func (b *browser) stream(ctx context.Context, path string) (next func() string) {
	b.w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", b.w.srv.URL+path, nil)
	if err != nil {
		b.w.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	client := *b.client
	client.Timeout = 0
	resp, err := client.Do(r)
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.w.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b.w.t.Fatal(resp.Status, resp.Header)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return func() string {
		var event []string
		for lines.Scan() {
			if lines.Text() == "" && len(event) > 0 {
				if text := strings.Join(event, "\n"); strings.Contains(text, "data: ") {
					return text
				}
				event = nil
				continue
			}
			event = append(event, lines.Text())
		}
		return "" // the stream has ended
	}
}

func TestLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Blog")
	b := w.as("ada@example.test")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := b.stream(ctx, "/live/home")
	if e := next(); !strings.HasPrefix(e, "event: html\n") || !strings.Contains(e, "status-pending") {
		t.Fatalf("first: %.300s", e)
	}
	w.activate(s)
	if e := next(); !strings.Contains(e, "status-active") {
		t.Fatalf("after the change: %.300s", e)
	}
	// Signing out ends open streams.
	b.post("/sign-out")
	if e := next(); e != "" {
		t.Fatalf("after signing out: %.300s", e)
	}
}

// BenchmarkHome measures pages of a user with a thousand sites.
func BenchmarkHome(b *testing.B) {
	w, br := thousand(b)
	for _, path := range []string{"/", "/?q=site+77", "/?status=pending&page=20"} {
		b.Run(url.QueryEscape(path), func(b *testing.B) {
			for b.Loop() {
				if p := br.get(path); p.status != 200 {
					b.Fatal(p)
				}
			}
		})
	}
	_ = w
}

func thousand(t testing.TB) (*world, *browser) {
	w := newWorld(t)
	u := w.user("ada@example.test", false)
	err := w.db.Write(t.Context(), func(tx *db.Tx) error {
		for i := range 1000 {
			s, err := w.dash.Sites.CreateTx(t.Context(), tx, u.Owner, site.NewSite{
				Name:       fmt.Sprintf("Site %d", i),
				Type:       "static",
				Repository: "git.test/acme/site",
			})
			if err != nil {
				return err
			}
			if _, err := w.dash.Deployments.TriggerTx(t.Context(), tx, u.Owner, s.ID, deploy.Trigger{Cause: deployment.ByAPI}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w, w.as("ada@example.test")
}

// Favorites are per user and listed first. Tags filter the list and are shown only if sites have some.
func TestFavoritesAndTags(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	old, shop := w.site(ada, "Old journal"), w.site(ada, "Shop")
	eves := w.site(eve, "Eve's")
	b := w.as(ada.Email)
	order := func(path string) (ids []string) {
		t.Helper()
		for _, part := range strings.Split(b.get(path).body, `data-test="card-site_`)[1:] {
			id, _, _ := strings.Cut(part, `"`)
			ids = append(ids, "site_"+id)
		}
		return ids
	}
	want := func(path string, sites ...site.Site) {
		t.Helper()
		var ids []string
		for _, s := range sites {
			ids = append(ids, string(s.ID))
		}
		if got := order(path); strings.Join(got, " ") != strings.Join(ids, " ") {
			t.Errorf("%s lists %v, want %v", path, got, ids)
		}
	}
	if p := b.get("/"); p.has("tags") {
		t.Errorf("tags are offered where no site has any: %s", p)
	}
	want("/", shop, old)
	star := func(s site.Site, on string) reply {
		t.Helper()
		return b.post("/sites/"+string(s.ID)+"/favorite", "on", on, "back", "/?view=list")
	}
	if p := star(old, "1"); p.status != http.StatusSeeOther || p.header.Get("Location") != "/?view=list" {
		t.Errorf("after the click: %s", p)
	}
	want("/", old, shop)
	want("/?view=list", old, shop)
	if p := b.get("/"); strings.Count(p.body, `aria-pressed="true"`) != 2 { // and the theme button
		t.Errorf("%d buttons are pressed", strings.Count(p.body, `aria-pressed="true"`))
	}
	if p := star(eves, "1"); p.status != http.StatusNotFound {
		t.Errorf("another's site: %s", p)
	}
	star(old, "0")
	want("/", shop, old)

	save := func(tags string) reply {
		t.Helper()
		return b.post("/sites/"+string(old.ID)+"/settings", "part", "name", "name", old.Name, "tags", tags)
	}
	if p := save("Print, client A"); p.status != http.StatusSeeOther {
		t.Errorf("tags are not saved: %s", p)
	}
	if p := save("a\nb"); p.status != http.StatusUnprocessableEntity || !p.has("wrong-tags") {
		t.Errorf("a tag of two lines: %s", p)
	}
	if p := b.post("/sites/"+string(old.ID)+"/settings", "part", "name", "name", "Journal"); p.status != http.StatusSeeOther {
		t.Errorf("renamed: %s", p)
	}
	if p := b.get("/"); !p.has("tags") || !strings.Contains(p.body, `href="/?tag=client&#43;a"`) && !strings.Contains(p.body, `href="/?tag=client+a"`) {
		t.Errorf("the tags are not offered: %s", p.body)
	}
	want("/?tag=client+a", old)
	want("/?tag=print&q=shop")
	want("/?tag=gone")
}

// The dashboard refuses a second site with the same name and suggests a free one. Sites with equal names from elsewhere
// are told apart.
func TestSiteNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	shop := w.site(ada, "Shop")
	b := w.as(ada.Email)
	create := func(name string) reply {
		t.Helper()
		return b.post("/new", "type", "static", "step", "create", "name", name, "repository", "git.test/acme/site")
	}
	if p := create("shop"); p.status != http.StatusConflict || !p.has("wrong-name") || !strings.Contains(p.body, "“shop 2” is free") {
		t.Errorf("a taken name: %s", p)
	}
	if p := create("shop 2"); p.status != http.StatusSeeOther {
		t.Errorf("a free name: %s", p)
	}
	if p := b.post("/new", "type", "static", "step", "look", "repository", "git.test/acme/shop"); !strings.Contains(p.body, `value="shop 3"`) {
		t.Errorf("the name that is proposed for the repository: %s", p)
	}
	if p := b.post("/sites/"+string(shop.ID)+"/settings", "part", "name", "name", "Shop 2"); p.status != http.StatusConflict || !p.has("wrong-name") {
		t.Errorf("renamed to another's name: %s", p)
	}
	if p := b.post("/sites/"+string(shop.ID)+"/settings", "part", "name", "name", "SHOP"); p.status != http.StatusSeeOther {
		t.Errorf("its own name in capitals: %s", p)
	}
	twin := w.site(ada, "Shop")
	for _, path := range []string{"/account/keys/new", "/webhooks/new", "/account/notifications"} {
		p := b.get(path)
		if !strings.Contains(p.body, "Shop ("+twin.Slug+")") || !strings.Contains(p.body, "SHOP ("+shop.Slug+")") || strings.Contains(p.body, "shop 2 (") {
			t.Errorf("%s doesn't tell the sites apart: %s", path, p.body)
		}
	}
}
