package dashboard

import (
	"strings"
	"testing"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
	accountpages "slipway/internal/web/dashboard/account"
	"slipway/internal/web/dashboard/sites"
)

// The list of deployments can be filtered by branch, target and status, distinguishes buttons with the same label, and
// has first and last page links.
func TestDeploymentList(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	first, second, failed := w.deployment(s), w.deployment(s), w.deployment(s)
	w.live(s, first)
	w.live(s, second)
	w.end(failed, deployment.Failed, "no luck")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE deployments SET branch = 'dev', target = 'preview' WHERE id = $1`, failed)
		return err
	}))
	shows := func(query string, want ...deployment.ID) {
		t.Helper()
		p := b.get(base+"/deployments"+query).want(t, 200)
		n := 0
		for _, id := range want {
			if p.has("dep-" + string(id)) {
				n++
			}
		}
		if n != len(want) || strings.Count(p.body, `data-test="dep-dep_`) != len(want) {
			t.Errorf("%q shows %d of %d", query, strings.Count(p.body, `data-test="dep-dep_`), len(want))
		}
	}
	shows("", first, second, failed)
	shows("?branch=dev", failed)
	shows("?target=preview", failed)
	shows("?status=success", first, second)
	shows("?status=failed&target=production")
	shows("?status=nonsense&target=x", first, second, failed)
	b.get(base+"/deployments?target=preview").want(t, 200, `data-test="preview"`, `<option value="preview" selected>`)
	b.get(base+"/deployments?branch=none").want(t, 200, "No matching deployments")
	p := b.get(base+"/deployments").want(t, 200, `aria-label="Roll back: `)
	if n := strings.Count(p.body, "("+first.Label()+`)"`); n != 1 {
		t.Errorf("%d buttons name %s", n, first)
	}
	for range 50 {
		w.end(w.deployment(s), deployment.Failed, "no luck")
	}
	b.get(base+"/deployments?status=failed&page=2").want(
		t,
		200,
		`page=1&amp;status=failed" data-test="first-page"`,
		`page=3&amp;status=failed" data-test="last-page"`,
	)
}

// Without scripts, a deployment's page reloads itself only while the deployment runs.
func TestDeploymentRefreshes(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	id := w.deployment(s)
	const refresh = `<noscript><meta http-equiv="refresh" content="5"></noscript>`
	b.get(sites.DeploymentPath(s.ID, id)).want(t, 200, refresh)
	w.end(id, deployment.Failed, "no luck")
	if p := b.get(sites.DeploymentPath(s.ID, id)).want(t, 200); strings.Contains(p.body, "http-equiv") {
		t.Error("a deployment that has ended refreshes")
	}
}

// Audit entries name the site they are about.
func TestAuditNamesSites(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	b.post("/sites/"+string(s.ID)+"/deploy").to(t, "/sites/")
	b.post("/sites/"+string(s.ID)+"/env", "key", "A", "value", "1", "target", "build").to(t, "/sites/")
	p := b.get("/account/audit").want(t, 200, `data-test="audit-site">`+s.Name)
	if n := strings.Count(p.body, `data-test="audit-site"`); n != 2 {
		t.Errorf("%d entries name their site, want 2", n)
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error { return w.dash.Sites.DeleteTx(t.Context(), tx, s.Owner, s.ID) }))
	b.get("/account/audit").want(t, 200, "audit-env.set")
}

// Sites are listed as cards or rows in the requested order. A failed site shows the reason.
func TestHomeViews(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	zoo, bar := w.site(ada, "zoo"), w.site(ada, "Bar")
	why := "The build command failed: " + strings.Repeat("x", 90) + " because of this"
	wait.Until(t, "zoo's change comes later", func() bool { return db.Now() > bar.UpdatedAt })
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := w.dash.Sites.ProvisioningTx(t.Context(), tx, zoo); err != nil {
			return err
		}
		return w.dash.Sites.FailTx(t.Context(), tx, zoo.ID, why)
	}))
	b := w.as("ada@example.test")
	before := func(path string, first, second site.Site) {
		t.Helper()
		p := b.get(path).want(t, 200)
		i, j := strings.Index(p.body, "card-"+string(first.ID)), strings.Index(p.body, "card-"+string(second.ID))
		if i < 0 || j < i {
			t.Errorf("%s: %s at %d, %s at %d", path, first.Name, i, second.Name, j)
		}
	}
	before("/?sort=name", bar, zoo)
	before("/?sort=updated", zoo, bar)
	before("/?sort=nonsense&view=nonsense", bar, zoo)
	b.get("/").want(t, 200, `data-test="card-why">`+why, `class="shot failed"`)
	b.get("/?view=list&sort=name").want(t, 200, `data-test="list"`, why, `href="/?sort=name"`, `status=pending`, "view=list")
}

// A site whose program crashed is marked on its card, in its header and on its overview, which shows the reason.
func TestCrashShows(t *testing.T) {
	t.Parallel()
	state := "crashed"
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{process: func(site.Site) sites.Process {
			return sites.Process{State: state, Message: "exit code 1, 5 times in a row", Restarts: 5}
		}}
	})
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Shop")
	w.program(s, w.deployment(s))
	b := w.as("ada@example.test")
	base := "/sites/" + string(s.ID)
	for path, want := range map[string]string{
		"/":                `data-test="status-crashed">Crashed`,
		"/?view=list":      `data-test="status-crashed">Crashed`,
		base:               "exit code 1, 5 times in a row",
		base + "/domains":  `data-test="head-crashed"`,
		base + "/settings": `data-test="head-crashed"`,
	} {
		b.get(path).want(t, 200, want).lacks(t, `data-test="status-active">Live`)
	}
	state = "running"
	b.get("/").want(t, 200, `data-test="status-active"`).lacks(t, "status-crashed")
	b.get(base).want(t, 200, `data-test="status-active"`).lacks(t, "crashed")
}

// A program's page shows its state and its escaped output, only to its owner.
func TestProgramPage(t *testing.T) {
	t.Parallel()
	asked, process, ran := "", "", ""
	w := newWorld(t, func(c *Config) {
		c.Programs = programs{
			tasks: []sites.ProgramTask{
				{Kind: "worker", Name: "mail", Command: "node <mail>.js", State: "running"},
				{Kind: "cron", Name: "tidy", Command: "node tidy.js", Schedule: "@daily", Next: db.Now().Add(time.Hour)},
			},
			figures: func() ([]sites.ProgramFigures, time.Duration, error) {
				return []sites.ProgramFigures{{
					At:       db.Now(),
					Statuses: [4]int64{10, 0, 0, 2},
					P50:      time.Millisecond,
					P95:      40 * time.Millisecond,
					Memory:   64 << 20,
					CPU:      90500 * time.Millisecond,
					Wakes:    3,
					Restart:  1,
				}}, 15 * time.Minute, nil
			},
			run: func(command string) (string, error) {
				if command == "" {
					return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid command"}
				}
				ran = command
				return "op_1", nil
			},
			process: func(s site.Site) sites.Process {
				return sites.Process{State: "crashed", Restarts: 7, Instances: 3, Memory: 64 << 20, Message: "exit <b>1</b>"}
			},
			log: func(id site.ID, f sites.ProgramFilter) ([]sites.ProgramLine, error) {
				asked, process = f.Stream+"|"+f.Search, f.Process
				return []sites.ProgramLine{{N: 1, At: db.Now(), Level: "error", Stream: "stderr", Message: "<script>alert(1)</script>"}}, nil
			},
		}
	})
	ada := w.user("ada@example.test", false)
	w.user("eve@example.test", false)
	s := w.site(ada, "App")
	b := w.as("ada@example.test")
	at := "/sites/" + string(s.ID)
	if p := b.get(at).want(t, 200); strings.Contains(p.body, at+"/logs") {
		t.Error("a site without a program links to its log")
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		if err := w.dash.Sites.ProvisioningTx(t.Context(), tx, s); err != nil {
			return err
		}
		_, err := w.dash.Sites.ActivateTx(t.Context(), tx, s.ID, "dep_x", "rel", "node")
		return err
	}))
	b.get(at).want(t, 200, at+"/logs")
	p := b.get(at+"/logs?q=oops&stream=stderr").want(
		t, 200, "status-crashed", "64.0 MiB", "<dd>7</dd>", `<dd data-test="instances">3</dd>`, "exit &lt;b&gt;", "&lt;script&gt;alert",
	)
	if asked != "stderr|oops" || strings.Contains(p.body, "<script>alert") {
		t.Errorf("asked for %q", asked)
	}
	for _, want := range []string{
		"worker:mail", "node &lt;mail&gt;.js", "@daily", "Responses of the application", "12 requests, 2 5xx, 3 wakes",
		"p50 1ms, p95 40ms", "Memory over time: at most 64.0 MiB", "Processor time over time: 90.5 s",
		"3 wakes and 1 restart", "Run command",
	} {
		if !strings.Contains(p.body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	b.get(at+"/logs?process=worker%3Amail").want(t, 200)
	if process != "worker:mail" {
		t.Errorf("asked for process %q", process)
	}
	if r := b.post(
		at+"/commands",
		"command",
		" node x.js ",
	); r.status != 303 || ran != "node x.js" || !strings.Contains(r.header.Get("Location"), "process=op_1") {
		t.Errorf("a command: %d %v, %q ran", r.status, r.header, ran)
	}
	if r := b.post(at+"/commands", "command", ""); !strings.Contains(r.body, "Invalid command") {
		t.Errorf("an empty command: %d", r.status)
	}
	b.get(at + "/logs?stream=nonsense&q=" + strings.Repeat("x", 1000))
	if asked != "|"+strings.Repeat("x", sites.MaxLogSearch) {
		t.Errorf("asked for %d bytes", len(asked))
	}
	w.as("eve@example.test").get(at+"/logs").want(t, 404)
}

// The key page's commands work in every shell, and its presets name existing scopes.
func TestKeyPages(t *testing.T) {
	t.Parallel()
	w, b, _ := ada(t)
	p := b.post("/account/keys/new", "name", "CI", "power", "all", "reach", "all", "expires", "never").want(
		t,
		200,
		"<code>export SLIPWAY_KEY=slw_",
	)
	if strings.Contains(p.body, "read -rs") {
		t.Error("the snippet reads from the terminal")
	}
	p = b.get("/account/keys/new").want(t, 200)
	for _, x := range accountpages.ScopePresets {
		if _, err := account.ParseScopes(x.Scopes); err != nil || !p.has("preset-"+x.ID) {
			t.Error(x, err)
		}
		for _, s := range x.Scopes {
			if !strings.Contains(p.body, `value="`+s+`"`) {
				t.Errorf("%s ticks %s, which the form does not offer", x.ID, s)
			}
		}
	}
	_ = w
}

// An invitation's page describes an invitation. A password reset's page says that other sessions end.
func TestSetupSaysWhatItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	root := w.as("root@example.test")
	link := root.post("/operator/users/invite", "email", "bob@example.test", "role", "user").want(t, 200).value(t)
	p := w.browser().get(strings.TrimPrefix(link, w.srv.URL)).want(t, 200, "Accept your invite")
	if strings.Contains(p.body, "other") {
		t.Error("an invite speaks of other sessions")
	}
}

// The header links to the primary domain once it is active, names are shown in Unicode, a page has one primary button
// besides the header's, secrets are masked during input, events that this installation never sends are collapsed, and
// each warning is shown once.
func TestPagesAsStrangersReadThem(t *testing.T) {
	t.Parallel()
	w, b, s := ada(t)
	base := "/sites/" + string(s.ID)
	page := b.post(base+"/domains", "domain", "bücher.example.com").to(t, base+"/domains/dom_")
	b.get(page).want(t, 200, "bücher.example.com", "xn--bcher-kva.example.com")
	if p := b.get(base).want(t, 200); strings.Contains(p.body, `class="site-host" href="https://xn--bcher-kva.example.com"`) {
		t.Error("the header leads to a domain that is not active")
	}
	w.live(s, w.deployment(s))
	must(t, w.db.Admin(t.Context(), "UPDATE domains SET status = 'active', is_primary = TRUE"))
	p := b.get(base).want(t, 200, `class="site-host" href="https://xn--bcher-kva.example.com`, ">bücher.example.com</a>")
	if n := strings.Count(
		p.body,
		` rel="noopener">Visit</a>`,
	); n != 1 || !strings.Contains(p.body, `<a class="button primary" href="https://xn--bcher-kva.example.com`) {
		t.Errorf("%d Visit buttons, or one that leads elsewhere", n)
	}

	dep := w.deployment(s)
	w.end(dep, deployment.Failed, "no luck")
	for _, path := range []string{sites.DeploymentPath(s.ID, dep), base + "/domains", base + "/env", base + "/git"} {
		p := b.get(path).want(t, 200)
		_, main, _ := strings.Cut(p.body, "<main")
		if n := strings.Count(main, `class="button primary"`); n > 2 {
			t.Errorf("%s has %d primary buttons", path, n)
		}
	}
	if p := b.get(sites.DeploymentPath(s.ID, dep)).want(t, 200); strings.Count(p.body, "no luck") > 2 {
		t.Errorf("the reason is shown %d times", strings.Count(p.body, "no luck"))
	}

	b.get(base+"/env").want(t, 200, `data-test="secret"`)
	if css := b.get("/assets/"+w.dash.shell.Assets.Names["app.css"]).body + b.get("/assets/"+w.dash.shell.Assets.Names["site.css"]).body; !strings.Contains(
		css,
		"-webkit-text-security:",
	) {
		t.Error("no style masks the input")
	}
	p = b.get("/webhooks/new").want(t, 200)
	for _, unsent := range []string{"payment.", "subscription.", "invoice.", "billing"} {
		if strings.Contains(p.body, unsent) {
			t.Errorf("the picker offers %s events, which nothing here sends", unsent)
		}
	}
}
