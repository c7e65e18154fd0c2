package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/webhook/event"
)

// Amounts of data of the site and the webhook whose pages are measured.
const (
	busyDeployments = 200
	busyLines       = 5000
	busyDomains     = 25
	busyVariables   = 200
	busyHooks       = 100
	busyWebhooks    = 50
	busyDeliveries  = 500
	otherUsers      = 200
	auditLines      = 5000
)

// crowd identifies what the pages show.
type crowd struct{ site, deployment, domain, user string }

// seedCrowd writes sites, each with copies of a real site's deployment and a domain; the last one has much data. The
// database must not be in use.
func (b *bench) seedCrowd(w *world.World, model string) (c crowd, err error) {
	release, err := releaseOf(b.ctx, w, model)
	if err != nil {
		return c, err
	}
	ids, err := seedSites(b.ctx, w, b.pageSites, release)
	if err != nil {
		return c, err
	}
	c.site = ids[len(ids)-1]
	d, err := open(b.ctx, w)
	if err != nil {
		return c, err
	}
	defer d.Close()
	sealer, err := seal.Load(filepath.Join(w.Data, "secrets.key"))
	if err != nil {
		return c, err
	}
	a, err := newAuthority()
	if err != nil {
		return c, err
	}
	err = d.Write(b.ctx, func(tx *db.Tx) error {
		for i, id := range ids {
			deployments, domains := 3, 1
			if id == c.site {
				deployments, domains = busyDeployments, busyDomains
			}
			for range deployments {
				if c.deployment, err = seedDeployment(b.ctx, tx, model, id); err != nil {
					return err
				}
			}
			for n := range domains {
				host := fmt.Sprintf("www%d.customer-%d.test", n, i)
				chain, key, err := a.issue(host, n)
				if err != nil {
					return err
				}
				if err := seedDomain(b.ctx, tx, sealer, id, host, chain, key); err != nil {
					return err
				}
			}
		}
		return b.seedRest(tx, &c)
	})
	return c, err
}

func seedDeployment(ctx context.Context, tx *db.Tx, model, site string) (string, error) {
	id := db.NewID("dep")
	_, err := tx.Exec(ctx, `
		INSERT INTO deployments (id, site_id, owner_id, label, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author, framework,
			plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at)
		SELECT $1, $2, owner_id, $3, status, cause, branch, title, clear_cache, commit_hash, commit_message, commit_author, framework,
			plan, release, runtime, rollback_of, error, stages, attempt, cancel, created_at, started_at, completed_at
		FROM deployments WHERE site_id = $4`, id, site, id[len(id)-12:], model)
	if err != nil {
		return "", err
	}
	_, err = tx.Exec(ctx, `UPDATE sites SET live_deployment = $1 WHERE id = $2`, id, site)
	return id, err
}

// seedVisits writes a month of visits to a site.
func seedVisits(ctx context.Context, tx *db.Tx, site string) error {
	for span, n := range map[time.Duration]int{5 * time.Minute: 2 * 288, time.Hour: 31 * 24, 24 * time.Hour: 31} {
		for at := time.Now().Truncate(span); n > 0; n, at = n-1, at.Add(-span) {
			_, err := tx.Exec(ctx, `
				INSERT INTO traffic (site_id, span, at, ok, redirected, client_errors, server_errors, pages, bytes)
				VALUES ($1, $2, $3, $4, 3, 2, 1, $4, $5)`, site, span.Milliseconds(), db.At(at), 1000+n%97, n*4096)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// seedRest writes a long log, other users, and audit log entries.
func (b *bench) seedRest(tx *db.Tx, c *crowd) error {
	if err := seedVisits(b.ctx, tx, c.site); err != nil {
		return err
	}
	now := db.Now()
	for n := 1; n <= busyLines; n++ {
		text := fmt.Sprintf("src/components/part%d/index.tsx compiled in %d ms", n, n%97)
		_, err := tx.Exec(b.ctx, `
			INSERT INTO deployment_logs (deployment_id, n, at, level, stage, message, raw) VALUES ($1, $2, $3, 'info', 'build', $4, $5)`,
			c.deployment, n, now, text, "\x1b[32m✓\x1b[0m "+text)
		if err != nil {
			return err
		}
	}
	err := tx.QueryRow(b.ctx, `SELECT id FROM domains WHERE site_id = $1 LIMIT 1`, c.site).Scan(&c.domain)
	if err != nil {
		return err
	}
	if err := tx.QueryRow(b.ctx, `SELECT id FROM users`).Scan(&c.user); err != nil {
		return err
	}
	if _, err := tx.Exec(b.ctx, `UPDATE users SET admin = TRUE WHERE id = $1`, c.user); err != nil {
		return err
	}
	for n := range otherUsers {
		_, err := tx.Exec(b.ctx,
			`INSERT INTO users (id, owner_id, email, password, admin, created_at) VALUES ($1, 'own_' || substr($1, 5), $2, '', FALSE, $3)`,
			db.NewID("usr"), fmt.Sprintf("somebody%d@example.test", n), now)
		if err != nil {
			return err
		}
	}
	for range auditLines {
		_, err := tx.Exec(b.ctx, `
			INSERT INTO audit (id, at, user_id, about, key_id, session_id, addr, action, subject, detail)
			VALUES ($1, $2, $3, '', 'key_25o5kzh3mc7yw4tn6pqd2xlfae', '', '203.0.113.7', 'site.updated', $4, 'seeded')`, db.NewID("aud"), now, c.user, c.site)
		if err != nil {
			return err
		}
	}
	return nil
}

// seedDeliveries writes a webhook's deliveries. Every third failed three times with an HTML page as the response.
func seedDeliveries(ctx context.Context, w *world.World, hook string) error {
	d, err := open(ctx, w)
	if err != nil {
		return err
	}
	defer d.Close()
	page := strings.Repeat(`<p class="error">Something is wrong here.</p>`+"\n", 100)[:4000]
	catalogue := event.Catalogue(false)
	return d.Write(ctx, func(tx *db.Tx) error {
		for n := range busyDeliveries {
			e := catalogue[n%len(catalogue)]
			body, err := json.Marshal(e.Sample)
			if err != nil {
				return err
			}
			event, delivery, at := db.NewID("evt"), db.NewID("dlv"), db.Now().Add(-time.Hour)
			_, err = tx.Exec(ctx, `
				INSERT INTO webhook_events (id, owner_id, name, body, created_at)
				SELECT $1, owner_id, $2, $3, $4 FROM webhooks WHERE id = $5`, event, e.Name, string(body), at, hook)
			if err != nil {
				return err
			}
			state, status, answer, attempts := "succeeded", 200, "thanks", 1
			if n%3 == 0 {
				state, status, answer, attempts = "failed", 500, page, 3
			}
			_, err = tx.Exec(ctx, `
				INSERT INTO webhook_deliveries (id, event_id, hook_id, state, claims, failures, next_at, lease_until, created_at, finished_at, redelivery_of)
				VALUES ($1, $2, $3, $4, $5, 0, $6, 0, $6, $6, '')`, delivery, event, hook, state, attempts, at)
			if err != nil {
				return err
			}
			for i := range attempts {
				_, err = tx.Exec(ctx, `
					INSERT INTO webhook_attempts (delivery_id, n, started_at, duration, status, error, answer, late)
					VALUES ($1, $2, $3, 42, $4, '', $5, FALSE)`, delivery, i+1, at, status, answer)
				if err != nil {
					return err
				}
			}
		}
		return nil
	})
}
