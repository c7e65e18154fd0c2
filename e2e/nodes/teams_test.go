package nodes

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"slipway/e2e/world"
)

// atOnce sends concurrent requests to alternating nodes, and returns the number of responses per status.
func (i *installation) atOnce(calls int, request func(n int) world.Request) map[int]int {
	i.t.Helper()
	var mu sync.Mutex
	var wait sync.WaitGroup
	got := map[int]int{}
	for n := range calls {
		wait.Go(func() {
			answer, err := i.nodes[n%2].Do(i.t.Context(), request(n))
			if err != nil {
				i.t.Error(err)
				return
			}
			mu.Lock()
			got[answer.Status]++
			mu.Unlock()
		})
	}
	wait.Wait()
	return got
}

// Of concurrent requests on both nodes, only one may succeed if they exclude each other: the last owner can't leave, an
// invitation and a transfer are accepted once, and no site is created in a team that is being deleted.
func TestTeamRacesOnTwoNodes(t *testing.T) {
	i := install(t)
	a, b := i.nodes[0], i.nodes[1]
	i.start(a, b)
	ctx := t.Context()
	call := func(w *world.World, key, method, path string, body, out any) {
		t.Helper()
		if err := w.Call(ctx, key, method, path, body, out); err != nil {
			t.Fatal(err)
		}
	}
	ben, err := a.User("ben@example.test")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"ada@example.test": i.key, "ben@example.test": ben}
	var team struct{ ID string }
	call(a, i.key, "POST", "/teams", map[string]string{"name": "Acme", "slug": "acme"}, &team)
	teamKey := func(person string) string {
		t.Helper()
		var made struct{ Key string }
		call(a, keys[person], "POST", "/keys", map[string]any{"name": "team", "scopes": []string{"*"}, "teamId": team.ID}, &made)
		return made.Key
	}
	of := teamKey("ada@example.test")
	invite := func(key, person string) (token string) {
		t.Helper()
		var made struct{ URL string }
		call(a, key, "POST", "/teams/"+team.ID+"/invitations", map[string]string{"email": person, "role": "owner"}, &made)
		_, token, _ = strings.Cut(made.URL, "/invitations/")
		return token
	}

	// One invitation is accepted eight times.
	token := invite(of, "ben@example.test")
	got := i.atOnce(8, func(int) world.Request {
		return world.Request{Method: "POST", Path: "/invitations/accept", Key: ben, Body: map[string]string{"token": token}}
	})
	if got[http.StatusOK] != 1 || got[http.StatusInternalServerError] != 0 {
		t.Fatalf("an invitation accepted 8 times at once is answered %v", got)
	}
	if n := i.count(`SELECT count(*) FROM team_members WHERE owner_id = (SELECT owner_id FROM teams WHERE id = $1)`, team.ID); n != 2 {
		t.Fatalf("the team has %d members, want 2", n)
	}

	// Two owners leave at the same time, each through another node.
	for range 5 {
		people := []string{"ada@example.test", "ben@example.test"}
		got := i.atOnce(2, func(n int) world.Request {
			return world.Request{Method: "POST", Path: "/teams/" + team.ID + "/leave", Key: keys[people[n]]}
		})
		if !maps.Equal(got, map[int]int{http.StatusOK: 1, http.StatusConflict: 1}) {
			t.Fatalf("two owners who leave at once get %v, want one 200 and one 409", got)
		}
		stays, left := "", ""
		for _, person := range people {
			n := i.count(`SELECT count(*) FROM team_members m JOIN users u ON u.id = m.user_id WHERE u.email = $1`, person)
			if n == 1 {
				stays = person
			} else {
				left = person
			}
		}
		if stays == "" || left == "" {
			t.Fatalf("%q stays and %q left", stays, left)
		}
		call(b, keys[left], "POST", "/invitations/accept", map[string]string{"token": invite(teamKey(stays), left)}, nil)
	}

	// One transfer code is accepted eight times.
	i.commit("shop", map[string]string{"index.html": "a shop"})
	site := i.site(a, "shop")
	i.serves(b, "shop", "/", "a shop")
	var offer struct{ Code string }
	cyd, err := a.User("cyd@example.test")
	if err != nil {
		t.Fatal(err)
	}
	call(a, i.key, "POST", "/sites/"+site+"/transfer", map[string]string{"to": "cyd@example.test"}, &offer)
	if offer.Code == "" {
		t.Fatal("the offer has no code")
	}
	got = i.atOnce(8, func(int) world.Request {
		return world.Request{Method: "POST", Path: "/transfers/accept", Key: cyd, Body: map[string]string{"code": offer.Code}}
	})
	if got[http.StatusOK] != 1 || got[http.StatusInternalServerError] != 0 {
		t.Fatalf("a transfer accepted 8 times at once is answered %v", got)
	}
	call(b, cyd, "GET", "/sites/"+site, nil, nil)
	if answer, err := a.Do(ctx, world.Request{Method: "GET", Path: "/sites/" + site, Key: i.key}); err != nil || answer.Status != http.StatusNotFound {
		t.Errorf("the sender gets %d, %v", answer.Status, err)
	}

	// A team is deleted at one node while sites are created in it at the other.
	for round := range 5 {
		slug := fmt.Sprintf("brief-%d", round)
		call(a, i.key, "POST", "/teams", map[string]string{"name": "Brief", "slug": slug}, &team)
		key := teamKey("ada@example.test")
		got := i.atOnce(6, func(n int) world.Request {
			if n == 0 {
				return world.Request{Method: "DELETE", Path: "/teams/" + team.ID, Key: key, Body: map[string]string{"confirm": slug}}
			}
			return world.Request{Method: "POST", Path: "/sites", Key: key, Body: map[string]string{
				"name": "site", "type": "static", "repository": "git.test/acme/shop",
			}}
		})
		if got[http.StatusInternalServerError] != 0 {
			t.Errorf("round %d: %v", round, got)
		}
		if n := i.count(`
			SELECT count(*) FROM sites s JOIN teams t ON t.owner_id = s.owner_id
			WHERE t.id = $1 AND t.deleted_at <> 0 AND s.deleted_at = 0`, team.ID); n != 0 {
			t.Errorf("round %d: %d sites of a deleted team; answers %v", round, n, got)
		}
	}
}
