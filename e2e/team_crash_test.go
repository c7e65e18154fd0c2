package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// crashing is an installation to be killed, with a user who has a team.
type crashing struct {
	*world.World
	t         *testing.T
	ctx       context.Context
	key, acme string // API keys of the user, and of the team
	offering  string // API key of the user that can't accept for the team
	team      string
	slug      string
}

func newCrashing(t *testing.T) *crashing {
	t.Helper()
	w, err := world.New(binary, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	ctx := t.Context()
	c := &crashing{World: w, t: t, ctx: ctx}
	if c.key, err = w.User("ada@example.test"); err != nil {
		t.Fatal(err)
	}
	if c.offering, err = w.Key("ada@example.test", "sites:write"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(w.Dir, "content", "one")
	if err := world.WriteFiles(dir, map[string]string{"index.html": "one"}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Git.Commit("acme/one", "main", dir, "one"); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(ctx); err != nil {
		t.Fatal(err)
	}
	c.newTeam()
	return c
}

// newTeam creates a team and an API key for it.
func (c *crashing) newTeam() {
	c.t.Helper()
	var made struct{ ID, Key, Slug string }
	c.call(c.key, "POST", "/teams", map[string]any{"name": "Acme"}, &made)
	c.team, c.slug = made.ID, made.Slug
	c.call(c.key, "POST", "/keys", map[string]any{"name": "team", "scopes": []string{"*"}, "teamId": c.team}, &made)
	c.acme = made.Key
}

func (c *crashing) call(key, method, path string, body, out any) {
	c.t.Helper()
	if err := c.Call(c.ctx, key, method, path, body, out); err != nil {
		c.t.Fatal(err)
	}
}

// status sends a request and returns the response's status.
func (c *crashing) status(key, method, path string, body any) int {
	c.t.Helper()
	a, err := c.Do(c.ctx, world.Request{Method: method, Path: path, Key: key, Body: body})
	if err != nil {
		c.t.Fatal(err)
	}
	return a.Status
}

// site creates a site with a variable, a hook and a domain.
func (c *crashing) site(key, name string) (id string) {
	c.t.Helper()
	var made struct{ Data struct{ ID string } }
	c.call(key, "POST", "/sites", map[string]any{"name": name, "type": "static", "repository": "git.test/acme/one", "branch": "main"}, &made)
	id = made.Data.ID
	c.call(key, "POST", "/sites/"+id+"/env", map[string]any{"key": "A", "value": "a"}, nil)
	c.call(key, "POST", "/sites/"+id+"/hooks", map[string]any{"name": "ci"}, nil)
	c.call(key, "POST", "/sites/"+id+"/domains", map[string]any{"name": name + ".example-4711.com"}, nil)
	return id
}

func (c *crashing) until(what string, ok func() bool) {
	c.t.Helper()
	ctx, cancel := deadline()
	defer cancel()
	err := world.Until(ctx, 10*time.Millisecond, func() (bool, error) { return ok(), nil })
	if err != nil {
		c.t.Fatalf("no %s: %v", what, err)
	}
}

// killed sends a request, kills the program at a random moment within most, and restarts it. It returns the response's
// status, or 0 if none arrived.
func (c *crashing) killed(most time.Duration, method, path, key string, body any) (status int) {
	c.t.Helper()
	answered := make(chan int, 1)
	go func() {
		a, err := c.Do(c.ctx, world.Request{Method: method, Path: path, Key: key, Body: body})
		if err != nil {
			a.Status = 0
		}
		answered <- a.Status
	}()
	time.Sleep(rand.N(most)) // kill at a random moment
	c.Kill()
	if err := c.Start(c.ctx); err != nil {
		c.t.Fatal(err)
	}
	return <-answered
}

// parts describes the site's resources that a key can see; empty means none.
func (c *crashing) parts(key, id string) string {
	c.t.Helper()
	count := func(path string) int {
		a, err := c.Do(c.ctx, world.Request{Method: "GET", Path: "/sites/" + id + path, Key: key})
		if err != nil {
			c.t.Fatal(err)
		}
		var list struct{ Data []any }
		if a.Status == http.StatusOK && a.JSON(&list) != nil {
			c.t.Fatalf("%s: %s", path, a.Body)
		}
		return len(list.Data)
	}
	for {
		before := c.status(key, "GET", "/sites/"+id, nil)
		counts := [...]int{count("/deployments"), count("/env"), count("/hooks"), count("/domains")}
		switch {
		case c.status(key, "GET", "/sites/"+id, nil) != before: // the site was deleted meanwhile
		case before != http.StatusOK && counts == [...]int{0, 0, 0, 0}:
			return ""
		default:
			return fmt.Sprintf("status %d, env %d, hooks %d, domains %d, deployments %d", before, counts[1], counts[2], counts[3], counts[0])
		}
	}
}

// A kill during a transfer leaves the site complete and with one owner. If the acceptance was acknowledged, the site
// has moved; otherwise it has moved, or the code can still be accepted.
func TestTransferSurvivesKill(t *testing.T) {
	t.Parallel()
	world.Long(t)
	c := newCrashing(t)
	id := c.site(c.key, "shop")
	c.until("live site", func() bool {
		var s struct{ Status string }
		c.call(c.key, "GET", "/sites/"+id, nil, &s)
		return s.Status == "active"
	})
	const whole = "status 200, env 1, hooks 1, domains 1, deployments 1"
	moved, lost := 0, 0
	for range 8 {
		var offer struct{ Code string }
		c.call(c.offering, "POST", "/sites/"+id+"/transfer", map[string]any{"to": "acme"}, &offer)
		status := c.killed(25*time.Millisecond, "POST", "/transfers/accept", c.acme, map[string]any{"code": offer.Code})
		mine, theirs := c.parts(c.key, id), c.parts(c.acme, id)
		switch {
		case mine == whole && theirs == "":
			lost++
			if status == http.StatusOK {
				t.Fatal("the receiver was told that the site is theirs, and it isn't")
			}
			if again := c.status(c.acme, "POST", "/transfers/accept", map[string]any{"code": offer.Code}); again != http.StatusOK {
				t.Fatalf("a code that moved nothing gets %d", again)
			}
		case theirs == whole && mine == "":
			moved++
			if again := c.status(c.acme, "POST", "/transfers/accept", map[string]any{"code": offer.Code}); again != http.StatusNotFound {
				t.Errorf("a spent code gets %d", again)
			}
		default:
			t.Fatalf("the sender has %q, the receiver has %q", mine, theirs)
		}
		c.until("the way back", func() bool {
			return c.status(c.acme, "POST", "/sites/"+id+"/transfer", map[string]any{"to": "ada@example.test"}) == http.StatusCreated &&
				c.parts(c.key, id) == whole
		})
	}
	t.Logf("%d transfers were made when the program was killed, %d not", moved, lost)
}

// However often the program is killed while a team is deleted with its sites, the deletion completes. A request that
// never arrived changes nothing.
func TestTeamDeletionSurvivesKill(t *testing.T) {
	t.Parallel()
	world.Long(t)
	c := newCrashing(t)
	for range 3 {
		ids := []string{c.site(c.acme, "a"), c.site(c.acme, "b"), c.site(c.acme, "c")}
		there := func() bool { return c.status(c.acme, "GET", "/teams/"+c.team, nil) == http.StatusOK }
		path, confirm := "/teams/"+c.team+"?sites=delete", map[string]any{"confirm": c.slug}
		begun := false
		for range 5 {
			switch status := c.killed(25*time.Millisecond, "DELETE", path, c.acme, confirm); {
			case status == http.StatusAccepted:
				begun = true
			case status != 0 && status != http.StatusOK && status != http.StatusUnauthorized && status != http.StatusConflict:
				t.Errorf("a deletion gets %d", status) // 200 means that its sites were already gone
			}
			for _, id := range ids { // until the team is gone, each of its sites is complete or gone
				if parts := c.parts(c.acme, id); there() && parts != "" && !strings.HasPrefix(parts, "status 200, env 1, hooks 1, domains 1,") {
					t.Errorf("a site of the team has %q", parts)
				}
			}
		}
		if !begun && there() { // all requests may have been lost
			switch status := c.status(c.acme, "DELETE", path, confirm); status {
			case http.StatusAccepted, http.StatusOK, http.StatusConflict, http.StatusUnauthorized:
			default:
				t.Fatalf("the team can't be deleted: %d", status)
			}
		}
		c.until("end of the team", func() bool { return c.status(c.acme, "GET", "/teams/"+c.team, nil) == http.StatusUnauthorized })
		var list struct{ Data []struct{ ID string } }
		if c.call(c.key, "GET", "/teams", nil, &list); len(list.Data) > 0 {
			t.Errorf("teams after the deletion: %+v", list.Data)
		}
		c.newTeam()
		c.call(c.acme, "GET", "/sites", nil, &list)
		if len(list.Data) > 0 {
			t.Errorf("the next team has %d sites", len(list.Data))
		}
	}
}
