//go:build browser

package dashboard

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	e2e "slipway/e2e/world"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/sites"
)

// The gallery takes pictures of the dashboard's pages with demo data, in both themes, on a phone, a laptop and a large
// screen, for people to look at (make gallery).
func TestBrowserGallery(t *testing.T) {
	if os.Getenv("SLIPWAY_GALLERY") == "" {
		t.Skip("it makes pictures and checks nothing: make gallery")
	}
	now := db.Now()
	var p blog
	w := p.world(t, demo, func(c *Config) { c.Programs = galleryPrograms(now) })
	const ada = "ada@example.com"
	u := w.user(ada, true)
	me := w.as(ada)
	press := w.liveWordPressNamed(u, me, "Harbor Blog")
	me.get(press+"/state/follow").want(t, 200, "event: end")
	failed := w.site(u, "Weekly Letter")
	broken := w.fails(failed)
	commits := map[string]string{
		"Portfolio": "Add the winter series", "Tidewater Studio": "Move the contact form up", "Acme Docs": "Explain signed webhooks", "Harbor Journal": "Publish the autumn issue",
	}
	for i, name := range []string{"Portfolio", "Tidewater Studio", "Acme Docs", "Harbor Journal"} {
		s := w.site(u, name)
		id := w.deployment(s)
		w.live(s, id)
		w.told(id, commits[name], fmt.Sprintf("%xc91e27d", 11+i), now.Add(-time.Duration(9-2*i)*5*time.Hour), 21*time.Second)
		w.visited(s, float64(40+i*60), 24*time.Hour)
	}
	shop := w.site(u, "Nordlicht Shop")
	at := "/sites/" + string(shop.ID)
	me.post(at+"/domains", "domain", "www.nordlicht.example")
	for name, value := range map[string]string{"API_URL": "https://api.nordlicht.example", "NODE_ENV": "production", "LOCALES": "en,de,no"} {
		me.post(at+"/env", "key", name, "value", value, "target", "build", "target", "runtime", "scope", "all")
	}
	me.post(at+"/env", "key", "STRIPE_SECRET_KEY", "value", "sk_live_5d1f", "secret", "1", "target", "runtime", "scope", "all")
	for i, message := range []string{"Add checkout by invoice", "Show delivery times", "Bump next to 16.1", "Fix the cart on small screens"} {
		id := w.deployment(shop)
		w.program(shop, id)
		w.told(id, message, fmt.Sprintf("a%df91c2", i+3), now.Add(-time.Duration(4-i)*7*time.Hour), time.Duration(41+3*i)*time.Second)
	}
	w.visited(shop, 900, 30*24*time.Hour)
	var hook string
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Teams.CreateTx(t.Context(), tx, u, team.NewTeam{Name: "Nordlicht"})
		return err
	}))
	me.post("/webhooks/new", "form-events", "1", "url", "https://hooks.nordlicht.example/slipway", "events", "deployment.completed", "events", "deployment.failed")
	hooks, err := w.dash.Webhooks.List(t.Context(), u.Owner)
	must(t, err)
	hook = string(hooks[0].ID)
	tagged := []string{"shop", "client"}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Sites.UpdateTx(t.Context(), tx, u.Owner, shop.ID, site.Patch{Tags: &tagged})
		return err
	}))

	domains, err := w.dash.Domains.ForSite(t.Context(), u.Owner, shop.ID)
	must(t, err)
	deployments, _, err := w.dash.Deployments.List(t.Context(), u.Owner, shop.ID, deployment.Filter{Page: 1, Limit: 1})
	must(t, err)
	live, pressOverview := at+"/deployments/"+string(deployments[0].ID), strings.TrimSuffix(press, "/wordpress")

	b := w.window("gallery", w.srv.URL)
	dir := os.Getenv("SLIPWAY_PICTURES")
	if dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(e2e.Root(), dir)
	}
	readme := map[string]string{"02-home": "sites", "04-overview": "site"}
	shoot := func(name, path string) {
		b.Go(path)
		if to := readme[name]; dir != "" && to != "" {
			b.PictureTo(filepath.Join(dir, to+".png"), 1280, 800, 1.5, "light")
			b.PictureTo(filepath.Join(dir, to+"-dark.png"), 1280, 800, 1.5, "dark")
		}
		for _, width := range []int64{390, 1280, 1920} {
			for _, scheme := range []string{"light", "dark"} {
				b.Picture(name, width, scheme)
			}
		}
	}
	shoot("01-sign-in", "/sign-in")
	signIn(b, ada)
	for _, x := range [][2]string{
		{"02-home", "/"},
		{"03-list", "/?view=list"},
		{"04-overview", at},
		{"05-deployments", at + "/deployments"},
		{"06-failed", "/sites/" + string(failed.ID) + "/deployments/" + string(broken)},
		{"07-logs", at + "/logs"},
		{"08-traffic", at + "/traffic"},
		{"09-domains", at + "/domains"},
		{"10-env", at + "/env"},
		{"11-settings", at + "/settings"},
		{"12-backups", at + "/backups"},
		{"13-wordpress", press},
		{"14-webhook", "/webhooks/" + hook},
		{"15-members", "/teams/nordlicht/members"},
		{"16-invite", "/teams/nordlicht/invite"},
		{"17-new", "/new"},
		{"18-key", "/account/keys/new"},
		{"19-security", "/account/security"},
		{"20-audit", "/account/audit"},
		{"21-usage", "/account/usage"},
		{"22-operator", "/operator"},
		{"23-empty", "/?team=nordlicht"},
		{"24-git", at + "/git"},
		{"25-hooks", at + "/hooks"},
		{"26-routing", "/sites/" + string(failed.ID) + "/rules"},
		{"27-databases", at + "/databases"},
		{"28-webhooks-none", "/webhooks?team=nordlicht"},
		{"29-failed-site", "/sites/" + string(failed.ID)},
		{"30-notifications", "/account/notifications"},
		{"31-deployment", live},
		{"32-domain", at + "/domains/" + string(domains[0].ID)},
		{"33-transfer", at + "/transfer?to=nordlicht"},
		{"34-import", at + "/env/import"},
		{"35-webhook-new", "/webhooks/new"},
		{"36-press", pressOverview},
	} {
		shoot(x[0], x[1])
	}
}

// told sets a deployment's commit as a push does.
func (w *world) told(id deployment.ID, message, commit string, at db.Time, took time.Duration) {
	w.t.Helper()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(w.t.Context(), `UPDATE deployments SET commit_hash = $2, commit_message = $3, commit_author = 'Ada', branch = 'main', cause = 'push', plan = $4,
			created_at = $5, started_at = $5, completed_at = $6 WHERE id = $1`, id, commit, message, nextPlan, at, at.Add(took))
		return err
	}))
}

func (w *world) fails(s site.Site) deployment.ID {
	w.t.Helper()
	id := w.deployment(s)
	now := db.Now()
	must(w.t, w.db.Write(w.t.Context(), func(tx *db.Tx) error {
		if err := w.dash.Sites.ProvisioningTx(w.t.Context(), tx, s); err != nil {
			return err
		}
		if err := w.dash.Sites.FailTx(w.t.Context(), tx, s.ID, "The build command ended with exit code 1: npm run build"); err != nil {
			return err
		}
		if err := w.endTx(tx, id, deployment.Failed, "The build command ended with exit code 1: npm run build", ""); err != nil {
			return err
		}
		for n, text := range []string{
			"Cloning github.com/acme/weekly, branch main", "Commit 9c1b44e: Sort the letters by date", "Installing dependencies: npm ci", "added 214 packages in 3s",
			"Building: npm run build", "> weekly@1.4.0 build", "> astro build", "src/pages/index.astro:41:17: ERROR: Unexpected token, expected \"}\"",
			"  41 |   {letters.sort((a, b) => a.date - b.date.map((l) => <Letter {...l} />)}", "     |                 ^", "npm error code 1",
		} {
			level := "info"
			if n == 7 || n == 10 {
				level = "error"
			}
			_, err := tx.Exec(w.t.Context(), `INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES ($1, $2, $3, $4, 'build', $5, $5)`,
				id, n+1, now.Add(time.Duration(n)*400*time.Millisecond), level, text)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return id
}

func galleryPrograms(now db.Time) programs {
	return programs{
		process: func(site.Site) sites.Process {
			return sites.Process{State: "running", Since: now.Add(-7 * time.Hour), Memory: 96 << 20}
		},
		figures: func() (list []sites.ProgramFigures, step time.Duration, err error) {
			for i := range 96 {
				list = append(list, sites.ProgramFigures{
					At: now.Add(-time.Duration(95-i) * 15 * time.Minute), P95: time.Duration(38+14*math.Sin(float64(i)/9)+9*math.Sin(float64(i*i))) * time.Millisecond,
					Memory: int64(88+7*math.Sin(float64(i)/14)+2*math.Sin(float64(3*i*i))) << 20,
				})
			}
			return list, 15 * time.Minute, nil
		},
		log: func(_ site.ID, f sites.ProgramFilter) (out []sites.ProgramLine, _ error) {
			if f.Stream == "system" || f.After > 0 {
				return nil, nil
			}
			lines := []sites.ProgramLine{
				{Level: "info", Message: "Listening on port 3000"},
				{Level: "info", Message: `GET /products 200 in 31 ms`},
				{Level: "debug", Message: `cache miss for products:de`},
				{Level: "warn", Message: `Stripe answered after 1,840 ms; retrying once`},
				{Level: "error", Message: `Error: connect ECONNREFUSED 10.0.0.7:6379`},
				{Level: "error", Message: `    at TCPConnectWrap.afterConnect [as oncomplete] (node:net:1637:16)`},
				{Level: "info", Process: "worker:mail", Message: `sent order confirmation NL-20481`},
			}
			for i := range int64(60) {
				x := lines[i%int64(len(lines))]
				x.N, x.At, x.Stream = i+1, now.Add(-time.Duration(60-i)*41*time.Second), "stdout"
				if x.Process == "" {
					x.Process = "web"
				}
				out = append(out, x)
			}
			return out, nil
		},
	}
}
