//go:build browser

package browser

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // driver "sqlite"

	"slipway/e2e/world"
)

// With a mouse and with only the keyboard, eight of the ten stories take no more acts than on the best other platform.
// The two WordPress stories are in e2e/wordpress.
func TestBrowserTenStories(t *testing.T) {
	t.Parallel()
	world.Long(t)
	for _, keyboard := range []bool{false, true} {
		name := map[bool]string{false: "mouse", true: "keys"}[keyboard]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ten(t, newHarness(t, "ten-"+name, "harbor"), keyboard)
		})
	}
}

// The table in docs/dashboard.md matches Ten.
func TestPeersInDocs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(world.Root(), "docs", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Clicks")
	for _, p := range Ten {
		want := " | "
		for _, n := range []int{p.Vercel, p.Render, p.Kinsta} {
			want += strings.ReplaceAll(strconv.Itoa(n)+" | ", "0", "–")
		}
		_, row, _ := strings.Cut(table, "| "+strings.ToUpper(p.Story[:1])+p.Story[1:]+" | ")
		if row, _, _ = strings.Cut(row, "\n"); len(row) < 2 || row[1:] != strings.TrimSuffix(want, " ") {
			t.Errorf("docs/dashboard.md says of %q: %q, not %q", p.Story, row, want)
		}
	}
}

func ten(t *testing.T, h *harness, keyboard bool) {
	key, err := h.User(email)
	if err != nil {
		t.Fatal(err)
	}
	call := func(method, path string, body, out any) {
		t.Helper()
		if err := h.Call(t.Context(), key, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	w := h.window()
	live := "https://harbor.localhost:" + h.port() + "/"
	w.Allow(live)
	s := &story{harness: h, Window: w, t: t, live: live, begun: time.Now()}
	w.Go("/sign-in")
	w.Type("#f-email", email)
	w.Type("#f-password", world.Password)
	w.Press("@submit")
	p := &Hand{Window: w, Keyboard: keyboard}
	h.commit("acme/harbor", "Lay the keel", h.project("page('Hello from the harbor')\n"))

	p.Tell("repository to live site", "/", func() {
		p.Open("@new-site")
		p.Fill("#f-repository", "git.test/acme/harbor")
		p.Open("@continue")
		p.Sees("@plan", "npm run build")
		p.Open("@create")
		p.Sees("@deployment @status-success")
		p.Sees("@live-link", "harbor.localhost")
	})
	s.answers(http.StatusOK, "Hello from the harbor")
	site, _, _ := strings.Cut(p.Path(), "/deployments/")
	card := `.card-link[href="` + site + `"]`
	page := func(name string) string { return `.rail-link[href="` + site + "/" + name + `"]` }

	h.commit("acme/harbor", "Greet by a variable", h.project("page(process.env.GREETING ?? 'none')\n"))
	p.Tell("add a variable and redeploy", "/", func() {
		p.Open(card)
		p.Open(page("env"))
		p.Fill("#f-key", "GREETING")
		p.Fill("#f-value", "Ahoy")
		p.Open("@add-var-deploy")
		p.Sees("@deployment @status-success")
	})
	s.answers(http.StatusOK, "Ahoy")

	p.Tell("add a domain and see its DNS records", "/", func() {
		p.Open(card)
		p.Open(page("domains"))
		p.Fill("#f-domain", "www.harbor.test")
		p.Open("@add-domain")
		p.Sees("@domain", "www.harbor.test", "CNAME", "Not found")
	})

	p.Tell("roll back", "/", func() {
		p.Open(card)
		p.Asks("@open-roll-*")
		p.Sees("dialog:popover-open", "Roll back to this deployment?")
		p.Open("dialog:popover-open @do-roll-*")
		p.Sees("@flash", "Rolled back")
	})
	s.answers(http.StatusOK, "Hello from the harbor")

	h.commit("acme/harbor", "Run aground", h.project("console.error('Error: no water under the keel')\nprocess.exit(3)\n"))
	var deploy struct{ DeploymentID string }
	call("POST", site+"/deploy", nil, &deploy)
	var failed struct{ Status string }
	h.until("the deployment fails", func() (bool, error) {
		err := h.Call(t.Context(), key, "GET", "/deployments/"+deploy.DeploymentID, nil, &failed)
		return failed.Status == "failed", err
	})
	p.Tell("read the error of a failed build", "/", func() {
		p.Open(card)
		p.Open("@view-error")
		p.Sees("@why", "exit code 3")
		p.Sees("@log .ln.error", "no water under the keel")
		p.Until("the error is not in sight", `(() => { const log = document.querySelector('.log').getBoundingClientRect(), r = document.querySelector('.ln.error').getBoundingClientRect();
			return r.top >= log.top && r.bottom <= log.bottom && r.top >= 0 && r.bottom <= innerHeight; })()`)
	})

	call("POST", "/teams", map[string]string{"name": "Acme"}, &struct{}{})
	p.Tell("invite a member", "/?team=acme", func() {
		p.Open(`.rail-link[href="/teams/acme/members"]`)
		p.Open("@invite")
		p.Fill("#f-email", "grace@example.test")
		p.Open("@submit")
		p.Sees("@invitation-link", "grace@example.test")
	})

	p.Tell("create a webhook and send a test", "/", func() {
		p.Open(`.rail-link[href="/webhooks"]`)
		p.Open("@new-webhook")
		p.Fill("#f-url", h.Hooks.URL+"/test")
		p.Open("@create-webhook")
		p.Open("@ping")
		p.Sees("@deliveries", "ping")
	})
	if _, err := h.Hooks.Wait(t.Context(), 1, func(d world.Delivery) bool { return d.Path == "/test" }); err != nil {
		t.Fatal(err)
	}

	h.commit("acme/ferry", "Cast off", map[string]string{
		"package.json": `{"name": "ferry", "private": true, "scripts": {"start": "node ferry.js"}}`,
		"ferry.js": `const http = require('http')
console.log('mooring line 4711 is slack')
for (let i = 1; i <= 400; i++) console.log('buoy ' + i + ' passed')
http.createServer((q, r) => r.end('ahoy')).listen(process.env.PORT)`,
	})
	var ferry struct{ Data struct{ ID string } }
	call("POST", "/sites", map[string]string{"name": "ferry", "type": "static", "repository": "git.test/acme/ferry"}, &ferry)
	var printed struct{ Logs []struct{ Message string } }
	h.until("the application prints", func() (bool, error) {
		err := h.Call(t.Context(), key, "GET", "/sites/"+ferry.Data.ID+"/logs?search=buoy+400", nil, &printed)
		return len(printed.Logs) > 0, err
	})
	w.Go("/account/keys") // this page has no live updates, which would fail while the program is stopped
	h.ages(ferry.Data.ID, time.Hour)
	p.Tell("find a log line of an hour ago", "/", func() {
		p.Open(`.card-link[href="/sites/` + ferry.Data.ID + `"]`)
		p.Open(`.rail-link[href="/sites/` + ferry.Data.ID + `/logs"]`)
		p.Keys("/") // Tab would work too, but takes longer
		p.Focused("#log-search")
		p.Fill("#log-search", "line 4711")
		p.Send()
		p.Sees("@program-log", "mooring line 4711 is slack")
		p.Misses(`.ln:not(:has(mark))`)
	})
}

// until polls is until it is true.
func (h *harness) until(what string, is func() (bool, error)) {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.t.Context(), patience)
	defer stop()
	if err := world.Until(ctx, 25*time.Millisecond, is); err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
}

// ages stops the program and makes an application's log lines older.
func (h *harness) ages(site string, by time.Duration) {
	h.t.Helper()
	if err := h.World.Stop(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	d, err := sql.Open("sqlite", "file:"+filepath.Join(h.Data, "slipway.db")+"?_pragma=busy_timeout(60000)")
	if err != nil {
		h.t.Fatal(err)
	}
	_, err = d.ExecContext(h.t.Context(), `UPDATE app_logs SET at = at - $1 WHERE site_id = $2`, by.Milliseconds(), site)
	d.Close()
	if err == nil {
		err = h.Start(h.t.Context())
	}
	if err != nil {
		h.t.Fatal(err)
	}
}
