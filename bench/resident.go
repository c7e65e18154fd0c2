package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"slipway/e2e/world"
)

// resident measures the process's memory after many deployments, which must not grow with their number.
func (b *bench) resident(w *world.World) error {
	idle, err := rested(w)
	if err != nil {
		return err
	}
	const repositories = 10
	sites, rounds := b.deploys/10, 10
	repo := func(i int) string { return fmt.Sprintf("bench/resident-%d", i%repositories) }
	var ids []string
	var first, failed int
	for round := range rounds {
		for i := range repositories {
			if err := b.commit(w, repo(i), 100, fmt.Sprint("round ", round)); err != nil {
				return err
			}
		}
		var wait []string
		for i := range sites {
			if round == 0 {
				var created struct{ Data struct{ ID string } }
				body := map[string]string{
					"name":       fmt.Sprint("resident ", i),
					"type":       "static",
					"repository": "git.test/" + repo(i),
					"branch":     "main",
				}
				if err := w.Call(b.ctx, b.key, "POST", "/sites", body, &created); err != nil {
					return err
				}
				ids = append(ids, created.Data.ID)
				continue
			}
			var made struct{ DeploymentID string }
			if err := w.Call(b.ctx, b.key, "POST", "/sites/"+ids[i]+"/deploy", nil, &made); err != nil {
				return err
			}
			wait = append(wait, made.DeploymentID)
		}
		if round == 0 {
			for _, id := range ids {
				if err := b.settledSite(w, id); err != nil {
					return err
				}
			}
		}
		for _, id := range wait {
			if err := b.succeeded(w, id); err != nil {
				failed++
				if failed > sites*rounds/20 { // a single slow host doesn't change the result
					return err
				}
			}
		}
		if round == 0 {
			if first, err = rested(w); err != nil {
				return err
			}
		}
	}
	all, err := rested(w)
	if err != nil {
		return err
	}
	b.add(row{
		what:      fmt.Sprintf("memory, after %d deployments of %d sites", sites*rounds, sites),
		value:     megabytes(all),
		yardstick: fmt.Sprintf("after %d %s, idle %s", sites, megabytes(first), megabytes(idle)),
		ratio:     fmt.Sprintf("%.2f×", float64(all)/float64(first)),
		goal:      "< 150 MB",
	})
	return nil
}

// settledSite waits until a new site serves its first deployment.
func (b *bench) settledSite(w *world.World, id string) error {
	return b.ends(w, "/sites/"+id, "active", "error")
}

// succeeded waits until a deployment succeeds.
func (b *bench) succeeded(w *world.World, id string) error {
	return b.ends(w, "/deployments/"+id, "success", "failed")
}

// ends waits until the resource at a path has the status good, and fails if it has the status bad.
func (b *bench) ends(w *world.World, path, good, bad string) (err error) {
	ctx, done := context.WithTimeout(b.ctx, 5*time.Minute)
	defer done()
	waited := world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		var is struct{ Status, StatusReason, Error string }
		e := w.Call(ctx, b.key, "GET", path, nil, &is)
		if is.Status == bad {
			err = fmt.Errorf("%s: %s%s", path, is.StatusReason, is.Error)
		}
		return is.Status == good || is.Status == bad, e
	})
	return errors.Join(err, waited)
}

// rested waits until the process's memory stops falling, at most 30 s, and returns it.
func rested(w *world.World) (now int, err error) {
	for range 10 {
		before := now
		if now, err = settled(w); err != nil || before > 0 && now > before*98/100 {
			break
		}
	}
	return now, err
}
