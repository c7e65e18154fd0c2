package dashboard

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/node"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/operator"
)

func TestInvite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	root := w.as("root@example.test")
	if p := root.post("/operator/users/invite", "email", "nonsense", "role", "operator"); p.status != 422 || !p.has("wrong-email") ||
		!strings.Contains(p.body, `value="nonsense"`) || !strings.Contains(p.body, `value="operator" selected`) {
		t.Fatal(p)
	}
	if p := root.post("/operator/users/invite", "email", "root@example.test"); p.status != 409 || !p.has("wrong-email") {
		t.Fatal(p)
	}
	w.stale()
	if p := root.post(
		"/operator/users/invite",
		"email",
		"bob@example.test",
	); p.status != 403 || !p.has("problem") || !strings.Contains(p.body, `value="bob@example.test"`) {
		t.Fatal("a stale session invites without the password:", p)
	}
	p := root.post("/operator/users/invite", "email", "bob@example.test", "role", "user", "current", password)
	path, ok := strings.CutPrefix(p.value(t), w.srv.URL)
	if p.status != 200 || !ok || !strings.HasPrefix(path, "/setup/") {
		t.Fatal(p)
	}
	bob := w.browser()
	if p := bob.get(path); p.status != 200 || !p.has("whose") || !strings.Contains(p.body, "bob@example.test") {
		t.Fatal(p)
	}
	if p := bob.post(path, "email", "eve@example.test", "password", password); p.status != 303 {
		t.Fatal(p)
	}
	if p := bob.get("/account"); !strings.Contains(p.body, "bob@example.test") {
		t.Fatal(p)
	}
	if p := bob.get("/operator"); p.status != 404 {
		t.Error("who was invited as a user is an operator:", p.status)
	}
	u, err := w.dash.Accounts.UserByEmail(t.Context(), "bob@example.test")
	if err != nil {
		t.Fatal(err)
	}
	base := "/operator/users/" + string(u.ID)
	if p := root.post(base + "/uninvite"); p.status != 409 || !p.has("problem") {
		t.Error("the invitation of a user who has signed in can be revoked:", p)
	}
	if p := root.post(base + "/sign-out"); p.status != 303 || bob.get("/account").status != 303 {
		t.Error("Bob is still signed in")
	}
	p = root.post(base+"/link", "current", password)
	path = strings.TrimPrefix(p.value(t), w.srv.URL)
	if p := bob.post(path, "password", "quite another one 7"); p.status != 303 {
		t.Fatal(p)
	}
	if p := bob.get("/account/audit"); !p.has("audit-password.link") || !p.has("audit-password.set") || !strings.Contains(
		p.body,
		"by the operator",
	) {
		t.Error("Bob's audit log lacks the operator's action")
	}
	if w.logged("user.invited") != 1 {
		t.Error("the log does not say who invited")
	}
}

func TestAllSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	var all []site.Site
	for i, n := range []int{3, 0, 60, 4} {
		all = append(all, w.sites(w.user(fmt.Sprintf("u%d@example.test", i), false), n, fmt.Sprint("site ", i))...)
	}
	root := w.as("root@example.test")
	seen := map[site.ID]int{}
	for page := 1; page <= 3; page++ {
		p := root.get(fmt.Sprintf("/operator/sites?page=%d", page))
		for _, s := range all {
			if p.has("site-" + string(s.ID)) {
				seen[s.ID]++
			}
		}
	}
	for _, s := range all {
		if seen[s.ID] != 1 {
			t.Errorf("%s is listed %d times", s.Name, seen[s.ID])
		}
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	w := newWorld(t, func(c *Config) {
		c.Installation = shown{
			func() ([]operator.Queue, error) { return []operator.Queue{{Name: "deploy", Waiting: 3}}, nil },
			func() (operator.Disk, error) {
				return operator.Disk{Path: "/data", Size: 100 << 30, Free: 5 << 30}, nil
			},
			func() ([]operator.Finding, error) {
				<-ready
				return []operator.Finding{{Name: "git", OK: false, Required: true, Text: "git is <not> installed"}}, nil
			},
		}
	})
	w.user("root@example.test", true)
	root := w.as("root@example.test")
	p := root.get("/operator")
	if p.status != 200 || !p.has("queues") || !p.has("nodes") || !p.has("status-down") || !strings.Contains(p.body, "9s fast") || !p.has("doctor") || p.has("status-missing") || !strings.Contains(p.body, "Checking") {
		t.Fatal("the page waits for the doctor, or says nothing:", p)
	}
	close(ready)
	// The doctor's findings appear without a reload and stay on the page.
	root.follow("/live/operator", "", func(e event) bool { return strings.Contains(e.data, "status-missing") })
	p = root.get("/operator")
	if !p.has("disk") || !p.has("status-missing") || !strings.Contains(
		p.body,
		"git is &lt;not&gt; installed",
	) || !strings.Contains(p.body, `aria-valuenow="95"`) {
		t.Fatal(p)
	}
	w = newWorld(t)
	w.user("root@example.test", true)
	if p := w.as("root@example.test").get("/operator"); p.status != 200 || p.has("queues") || p.has("nodes") || p.has("disk") || p.has("doctor") {
		t.Fatal("the page shows figures that are unavailable:", p)
	}
}

// shown is an Installation whose answers are functions.
type shown struct {
	queues func() ([]operator.Queue, error)
	disk   func() (operator.Disk, error)
	doctor func() ([]operator.Finding, error)
}

func (s shown) Nodes(context.Context) ([]node.Node, error) {
	return []node.Node{
		{Name: "one", State: node.Up, Roles: []string{"api", "edge"}, Version: "1.2.0", SeenAt: db.Now()},
		{Name: "two", State: node.Down, Roles: []string{"worker"}, Version: "1.2.0", SeenAt: db.Now(), Ahead: 9 * time.Second},
	}, nil
}
func (s shown) Queues(context.Context) ([]operator.Queue, error)   { return s.queues() }
func (s shown) Disk(context.Context) (operator.Disk, error)        { return s.disk() }
func (s shown) Doctor(context.Context) ([]operator.Finding, error) { return s.doctor() }
