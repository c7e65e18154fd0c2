package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

// A large team, such as an agency's.
const (
	teamMembers = 500
	teamSites   = 5000
	teamGuests  = 100 // of the members, each with a role on three sites
)

// teams measures the lists of a large team for an owner and for a guest of ten sites, and requests with an app's token
// against those with a key.
func (b *bench) teams(w *world.World) error {
	var made struct{ ID, Key string }
	if err := b.call(w, "POST", "/teams", map[string]any{"name": "Bench", "slug": "bench"}, &made); err != nil {
		return err
	}
	team := made.ID
	if err := b.call(w, "POST", "/keys", map[string]any{"name": "team", "scopes": []string{"*"}, "teamId": team}, &made); err != nil {
		return err
	}
	owner := made.Key
	guestKey, err := w.User("guest@example.test")
	if err != nil {
		return err
	}
	var ids []string
	if err := b.stopped(w, func() (err error) { ids, err = seedTeam(b.ctx, w, team); return err }); err != nil {
		return fmt.Errorf("seed team: %w", err)
	}
	if err := w.Call(b.ctx, guestKey, "POST", "/keys", map[string]any{
		"name": "guest", "scopes": []string{"sites:read"}, "sites": ids[:10], "teamId": team,
	}, &made); err != nil {
		return err
	}
	bare, err := b.repeat(w, func(*rand.Rand) world.Request {
		return world.Request{Method: "GET", URL: "http://" + w.Listen + "/healthz"}
	})
	if err != nil {
		return err
	}
	for _, list := range []struct{ who, key, path string }{
		{"owner", owner, "/sites?limit=100"},
		{"owner", owner, "/sites?search=seeded-4"},
		{"guest", made.Key, "/sites"},
		{"owner", owner, "/teams/bench/members?limit=100"},
		{"owner", owner, "/teams/bench/members?limit=100&page=5"},
		{"owner", owner, "/teams/bench/invitations"},
		{"owner", owner, "/teams/bench/audit?limit=100"},
		{"owner", owner, "/keys"},
		{"owner", owner, "/domains"},
		{"owner", owner, "/oauth/grants"},
	} {
		took, err := b.repeat(w, func(*rand.Rand) world.Request {
			return world.Request{Method: "GET", Path: list.path, Key: list.key}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", list.path, err)
		}
		b.add(row{
			what:      fmt.Sprintf("GET %s as %s%s", list.path, list.who, b.on()),
			value:     fmt.Sprintf("%.0f/s, p50 %s, p99 %s", float64(len(took))/b.load.Seconds(), ms(quantile(took, .5)), ms(quantile(took, .99))),
			yardstick: fmt.Sprintf("/healthz p50 %s, p99 %s", ms(quantile(bare, .5)), ms(quantile(bare, .99))), goal: "p99 ≤ 10 ms",
		})
	}
	return b.tokens(w, owner, ids)
}

// tokens compares requests with an app's token to those with a key, for a personal account and for the team. Batches of
// both alternate, so that other load affects both.
func (b *bench) tokens(w *world.World, teamKey string, ids []string) error {
	own, err := seededOwn(b, w)
	if err != nil {
		return err
	}
	var app struct{ ID string }
	const redirect = "https://app.test/callback"
	if err := b.call(w, "POST", "/oauth/apps", map[string]any{"name": "Bench", "redirectUris": []string{redirect}}, &app); err != nil {
		return err
	}
	person, err := w.Person(email)
	if err != nil {
		return err
	}
	for _, of := range []struct {
		what, team, key string
		ids             []string
	}{{"a personal account", "", b.key, own}, {"the team", "bench", teamKey, ids}} {
		token, err := b.token(w, person, app.ID, redirect, of.team)
		if err != nil {
			return err
		}
		batch := func(secret string) (time.Duration, error) {
			start := time.Now()
			for n := range 200 {
				a, err := w.Do(b.ctx, world.Request{Method: "GET", Path: "/sites/" + of.ids[n%len(of.ids)], Key: secret})
				if err == nil {
					err = a.Err()
				}
				if err != nil {
					return 0, err
				}
			}
			return time.Since(start) / 200, nil
		}
		var with [2][]time.Duration
		for round := range 60 {
			for i := range 2 {
				i := (i + round) % 2 // alternate the order
				took, err := batch([]string{of.key, token}[i])
				if err != nil {
					return err
				}
				with[i] = append(with[i], took)
			}
		}
		ratios := make([]float64, len(with[0]))
		for i := range ratios {
			ratios[i] = float64(with[1][i]) / float64(with[0][i])
		}
		slices.Sort(ratios)
		key, tok := median(with[0]), median(with[1])
		b.add(row{
			what: "GET /sites/:id with a token, of " + of.what + b.on(), value: fmt.Sprintf("%.0f µs", float64(tok)/1e3),
			yardstick: fmt.Sprintf("with a key %.0f µs", float64(key)/1e3), ratio: fmt.Sprintf("%.2f×", ratios[len(ratios)/2]), goal: "≤ 1.05×",
		})
	}
	return nil
}

// seededOwn gives the benchmark's user their own sites.
func seededOwn(b *bench, w *world.World) (ids []string, err error) {
	err = b.stopped(w, func() error {
		d, err := open(b.ctx, w)
		if err != nil {
			return err
		}
		defer d.Close()
		var owner string
		if err := d.QueryRow(b.ctx, `SELECT owner_id FROM users WHERE email = $1`, email).Scan(&owner); err != nil {
			return err
		}
		ids, err = seedOwned(b.ctx, d, owner, "own", 100)
		return err
	})
	return ids, err
}

// token authorizes an app for the benchmark's user to read sites of a team, or of the user.
func (b *bench) token(w *world.World, person *world.Person, app, redirect, team string) (string, error) {
	const verifier = "a-verifier-that-has-at-least-forty-three-characters"
	sum := sha256.Sum256([]byte(verifier))
	to, err := person.Consent("http://"+w.Listen+"/oauth/authorize?"+url.Values{
		"client_id": {app}, "redirect_uri": {redirect}, "response_type": {"code"}, "scope": {"sites:read"}, "team": {team},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
	}.Encode(), "allow")
	if err != nil {
		return "", err
	}
	u, err := url.Parse(to)
	if err != nil {
		return "", err
	}
	a, err := w.Do(b.ctx, world.Request{
		Method: "POST", URL: "http://" + w.Listen + "/oauth/token",
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		Body: url.Values{
			"grant_type": {"authorization_code"}, "client_id": {app}, "redirect_uri": {redirect}, "code": {u.Query().Get("code")}, "code_verifier": {verifier},
		}.Encode(),
	})
	var pair struct {
		Access string `json:"access_token"`
	}
	if err == nil {
		err = a.JSON(&pair)
	}
	if err == nil && pair.Access == "" {
		err = fmt.Errorf("no token: %d %s", a.Status, a.Body)
	}
	return pair.Access, err
}

// seedOwned writes an owner's sites to the database.
func seedOwned(ctx context.Context, d *db.DB, owner, name string, n int) (ids []string, err error) {
	err = d.Write(ctx, func(tx *db.Tx) error {
		for i := range n {
			id := db.NewID("site")
			if err := seedSite(ctx, tx, owner, id, fmt.Sprintf("%s-%d", name, i), ""); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO site_counts (owner_id, type, status, n) VALUES ($1, 'static', 'active', $2)
			ON CONFLICT (owner_id, type, status) DO UPDATE SET n = site_counts.n + excluded.n`, owner, n)
		return err
	})
	return ids, err
}

// seedTeam writes the sites, members and guests of the large team, and its audit log, to the database.
func seedTeam(ctx context.Context, w *world.World, team string) ([]string, error) {
	d, err := open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var owner string
	if err := d.QueryRow(ctx, `SELECT owner_id FROM teams WHERE id = $1`, team).Scan(&owner); err != nil {
		return nil, err
	}
	ids, err := seedOwned(ctx, d, owner, "seeded", teamSites)
	if err != nil {
		return nil, err
	}
	return ids, d.Write(ctx, func(tx *db.Tx) error {
		run := func(q string, args ...any) {
			if err == nil {
				_, err = tx.Exec(ctx, q, args...)
			}
		}
		member := func(user, role string) {
			run(`INSERT INTO team_members (owner_id, user_id, role, break_glass, joined_at, invited_by) VALUES ($1, $2, $3, FALSE, $4, '')`, owner, user, role, db.Now())
		}
		guest := func(user string, from, count int) {
			member(user, "")
			for n := range count {
				run(`INSERT INTO site_members (site_id, user_id, owner_id, role) VALUES ($1, $2, $3, 'developer')`, ids[(from+n)%len(ids)], user, owner)
			}
		}
		for n := range teamMembers - 2 {
			user, own := db.NewID("usr"), db.NewID("own")
			run(`INSERT INTO owners (id, kind, created_at) VALUES ($1, 'personal', $2)`, own, db.Now())
			run(`INSERT INTO users (id, owner_id, email, password, admin, created_at, suspended_at, suspended_why) VALUES ($1, $2, $3, 'x', FALSE, $4, 0, '')`,
				user, own, fmt.Sprintf("member-%d@example.test", n), db.Now())
			if n < teamGuests {
				guest(user, 10+n*10, 3)
			} else {
				member(user, []string{"admin", "developer", "contributor", "viewer"}[n%4])
			}
			for i := range 20 {
				run(`INSERT INTO audit (id, at, user_id, about, owner_id, key_id, session_id, via, addr, action, subject, detail)
					VALUES ($1, $2, $3, '', $4, '', '', '', '203.0.113.7', 'site.updated', $5, '')`, db.NewID("aud"), db.Now(), user, owner, ids[(n*20+i)%len(ids)])
			}
		}
		var self string
		if err == nil {
			err = tx.QueryRow(ctx, `SELECT id FROM users WHERE email = 'guest@example.test'`).Scan(&self)
		}
		guest(self, 0, 10)
		if !d.Single() { // PostgreSQL would do it within a minute
			run(`ANALYZE`)
		}
		return err
	})
}
