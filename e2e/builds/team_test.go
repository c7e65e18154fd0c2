package builds

import (
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // reads the database beside the program

	"slipway/e2e/world"
)

// team creates a team with a developer. It returns the team's ID, API keys of its owner and of the developer, and the
// developer's user ID.
func (h *harness) team(name, developer string) (id, owners, theirs, user string) {
	h.t.Helper()
	personal := h.user(developer)
	var made struct{ ID string }
	var key struct{ Key string }
	var invitation struct{ URL string }
	h.call(h.key, "POST", "/teams", map[string]any{"name": name}, &made)
	h.call(h.key, "POST", "/keys", map[string]any{"name": "owner", "scopes": []string{"*"}, "teamId": made.ID}, &key)
	owners = key.Key
	h.call(owners, "POST", "/teams/"+made.ID+"/invitations", map[string]any{"email": developer, "role": "developer"}, &invitation)
	_, token, _ := strings.Cut(invitation.URL, "/invitations/")
	h.call(personal, "POST", "/invitations/accept", map[string]any{"token": token}, nil)
	h.call(personal, "POST", "/keys", map[string]any{
		"name": "developer", "scopes": []string{"sites:write", "deployments:write"}, "teamId": made.ID,
	}, &key)
	var members struct {
		Data []struct{ UserID, Email string }
	}
	h.call(owners, "GET", "/teams/"+made.ID+"/members", nil, &members)
	for _, m := range members.Data {
		if m.Email == developer {
			user = m.UserID
		}
	}
	return made.ID, owners, key.Key, user
}

// A member queues a deployment and is then removed from the team. The deployment still runs for the team, and the audit
// log names the member.
func TestQueuedDeploymentOfARemovedMember(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1")
	h.commit("acme/gated", shell("while [ ! -e gate ]; do echo closed; sleep 0.1; done; mkdir dist; echo gated > dist/index.html"))
	h.commit("acme/shop", shell("mkdir dist; echo 'of the team' > dist/index.html"))
	id, owners, bens, ben := h.team("Acme", "ben@example.test")
	first := h.siteOf(owners, "acme/gated", nil)
	running := h.first(first)
	h.until(patience, "running build", func() bool { return strings.Contains(h.log(first, running), "closed") })
	shop := h.siteOf(bens, "acme/shop", nil)
	queued := h.first(shop)
	h.until(patience, "waiting build", func() bool { return h.get(shop, queued).running() == "queue" })

	h.call(owners, "DELETE", "/teams/"+id+"/members/"+ben, nil, nil)
	if a, err := h.Do(t.Context(), world.Request{Method: "GET", Path: "/deployments/" + queued, Key: bens}); err != nil || a.Status != http.StatusUnauthorized {
		t.Errorf("a removed member reads the deployment: %d %v", a.Status, err)
	}
	shop.key = owners
	if d := h.get(shop, queued); d.Status != "pending" {
		t.Errorf("the queued deployment of a removed member is %s", d.Status)
	}
	h.open()
	h.built(first, running)
	h.built(shop, queued)
	h.shows(shop.URL, "of the team")
	var log struct {
		Data []struct{ Action, UserID, Subject string }
	}
	h.call(owners, "GET", "/teams/"+id+"/audit?userId="+ben+"&limit=100", nil, &log)
	if !slices.ContainsFunc(log.Data, func(e struct{ Action, UserID, Subject string }) bool {
		return e.Action == "site.created" && e.UserID == ben && e.Subject == shop.ID
	}) {
		t.Errorf("the team's log doesn't say who began it: %+v", log.Data)
	}
}

// Deleting a team ends its builds and their processes. Its waiting, building and live deployments are gone, none of
// them goes live, and no files remain.
func TestTeamDeletedWhileItDeploys(t *testing.T) {
	t.Parallel()
	h := newHarness(t, 0, "--builds", "1")
	h.commit("acme/live", shell("mkdir dist; echo live > dist/index.html"))
	h.commit("acme/sleep", sleeper("7"))
	id, owners, bens, _ := h.team("Acme", "ben@example.test")
	live := h.siteOf(owners, "acme/live", nil)
	h.built(live, h.first(live))
	h.shows(live.URL, "live")
	building := h.siteOf(bens, "acme/sleep", nil)
	h.first(building)
	h.until(patience, "running build", func() bool { return len(processes("sleep\x00863997")) > 0 })
	waiting := h.siteOf(bens, "acme/live", map[string]any{"name": "waiting"})
	h.first(waiting)

	a, err := h.Do(t.Context(), world.Request{Method: "DELETE", Path: "/teams/" + id + "?sites=delete", Key: owners, Body: map[string]any{"confirm": "acme"}})
	if err != nil || a.Status != http.StatusAccepted {
		t.Fatalf("the team is deleted: %d %s %v", a.Status, a.Body, err)
	}
	h.until(patience, "end of the processes", func() bool { return len(processes("sleep\x00863997")) == 0 })
	h.until(patience, "end of the team", func() bool {
		var list struct{ Data []struct{ ID string } }
		h.call(h.key, "GET", "/teams", nil, &list)
		return len(list.Data) == 0
	})
	h.until(patience, "end of the site", func() bool { return h.page(live.URL).Status != http.StatusOK })
	h.until(patience, "clean-up", func() bool {
		left := len(h.leftovers())
		for _, s := range []aSite{live, building, waiting} {
			if _, err := os.Stat(filepath.Join(h.Data, "builds/caches", s.ID)); err == nil {
				left++
			}
		}
		return left == 0
	})
	for _, s := range []aSite{building, waiting} {
		if p := h.page(s.URL); p.Status == http.StatusOK {
			t.Errorf("%s answers %d %s", s.URL, p.Status, p.Body)
		}
	}
	for _, key := range []string{owners, bens} {
		if a, err := h.Do(t.Context(), world.Request{Method: "GET", Path: "/sites", Key: key}); err != nil || a.Status != http.StatusUnauthorized {
			t.Errorf("a key of the team gets %d %v", a.Status, err)
		}
	}
	d, err := sql.Open("sqlite", "file:"+filepath.Join(h.Data, "slipway.db")+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for what, query := range map[string]string{
		"deployments, whose files the garbage collector keeps": `SELECT count(*) FROM deployments`,
		"sites that a release is live on":                      `SELECT count(*) FROM sites WHERE live_release <> '' AND deleted_at = 0`,
		"jobs that have not ended":                             `SELECT count(*) FROM jobs WHERE state <> 'dead' AND share = (SELECT owner_id FROM teams)`,
		"members":                                              `SELECT count(*) FROM team_members`,
	} {
		var n int
		h.until(patience, "end of "+what, func() bool {
			if err := d.QueryRow(query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 0
		})
	}
}
