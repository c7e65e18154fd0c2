package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/db"
)

// The numbers of running and woken applications on the machine.
const (
	manyRun  = 50
	manyWake = 40
)

// programsMany measures a machine with many applications of which fifty run: the service's memory, the latency of a
// running one, waking a sleeping one, and deploying. One application is deployed; the others are copies of its rows
// with the same release.
func (b *bench) programsMany(w *world.World) error {
	if err := b.repository(w, "app", benchProgram); err != nil {
		return err
	}
	browser, err := w.Browser()
	if err != nil {
		return err
	}
	alone, model, err := b.deployPrograms(w, "first", 8)
	if err != nil {
		return err
	}
	few, err := b.starts(w)
	if err != nil {
		return err
	}
	idle, err := rested(w)
	if err != nil {
		return err
	}
	if err := w.Stop(b.ctx); err != nil {
		return err
	}
	sites, err := seedPrograms(b.ctx, w, model, b.programCount)
	if err != nil {
		return err
	}
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	many, err := b.starts(w)
	if err != nil {
		return err
	}
	b.timing(fmt.Sprintf("start to ready, %d applications", len(sites)), many, few, "with 8 of them", "< 2 s")
	asleep, err := rested(w)
	if err != nil {
		return err
	}
	if n := len(below(w.PID())) - 1; n > 0 {
		return fmt.Errorf("%d processes beside the service, while all applications sleep", n)
	}
	b.add(row{
		what:      "memory of a site whose program sleeps",
		value:     fmt.Sprintf("%.1f kB, no process", float64(max(0, asleep-idle))/float64(len(sites))),
		yardstick: fmt.Sprintf("service with %d of them %s, with 8 %s", len(sites), megabytes(asleep), megabytes(idle)),
		goal:      "0 beside its rows",
	})

	run, sleep := sites[:min(manyRun, len(sites))], sites[min(manyRun, len(sites)):]
	before, err := wakes(browser, run)
	if err != nil {
		return err
	}
	if n := processesOf(benchScript); n != len(run) {
		return fmt.Errorf("%d programs run, want %d", n, len(run))
	}
	now, err := settled(w)
	if err != nil {
		return err
	}
	helpers, _ := helperMemory(w.PID())
	b.add(row{
		what:      fmt.Sprintf("memory of the service and its helpers, %d applications of which %d run", len(sites), len(run)),
		value:     megabytes(now + helpers),
		yardstick: "while all sleep " + megabytes(asleep),
		ratio:     fmt.Sprintf("%.2f×", float64(now+helpers)/float64(asleep)),
	})
	var awake []time.Duration
	for range 3000 {
		begun := time.Now()
		if err := hello(browser, run[rand.IntN(len(run))].url); err != nil {
			return err
		}
		awake = append(awake, time.Since(begun))
	}
	b.timing(fmt.Sprintf("of these, a request to one of the %d that run, p50", len(run)), median(awake), 0, "", "")
	b.timing(fmt.Sprintf("of these, a request to one of the %d that run, p99", len(run)), quantile(awake, .99), 0, "", "")
	woken, err := wakes(browser, sleep[:min(manyWake, len(sleep))])
	if err != nil {
		return err
	}
	b.timing(fmt.Sprintf("of these, the wake of one that sleeps while %d run, with its handshake, p50", len(run)),
		median(woken), median(before), fmt.Sprintf("the %d before them", len(run)), "150 ms")
	b.timing(fmt.Sprintf("of these, the wake of one that sleeps while %d run, with its handshake, p95", len(run)),
		quantile(woken, .95), quantile(before, .95), fmt.Sprintf("the %d before them", len(run)), "")
	beside, _, err := b.deployPrograms(w, "last", 8)
	if err != nil {
		return err
	}
	b.timing(fmt.Sprintf("deploy of one more application beside %d, until it is live, p50", len(sites)), median(beside),
		median(alone), "on an empty installation", "")
	return nil
}

// wakes requests sleeping programs one after the other and returns the durations.
func wakes(browser *http.Client, sites []program) (took []time.Duration, err error) {
	for _, p := range sites {
		begun := time.Now()
		if err := hello(browser, p.url); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}

// repository commits files to one of the benchmarks' repositories.
func (b *bench) repository(w *world.World, name string, files map[string]string) error {
	dir := filepath.Join(w.Dir, name)
	if err := world.WriteFiles(dir, files); err != nil {
		return err
	}
	_, err := w.Git.Commit("bench/"+name, "main", dir, name)
	return err
}

// deployPrograms deploys applications one after the other. It returns the time until each was live, and the first one's
// id.
func (b *bench) deployPrograms(w *world.World, name string, n int) (took []time.Duration, first string, err error) {
	for i := range n {
		begun := time.Now()
		var made struct{ Data struct{ ID string } }
		body := map[string]any{"name": fmt.Sprint(name, i), "type": "static", "repository": "git.test/bench/app", "branch": "main"}
		if err := b.call(w, "POST", "/sites", body, &made); err != nil {
			return nil, "", err
		}
		if err := b.settledSite(w, made.Data.ID); err != nil {
			return nil, "", err
		}
		took = append(took, time.Since(begun))
		if first == "" {
			first = made.Data.ID
		}
	}
	return took, first, nil
}

// seedPrograms writes n copies of an application's rows to the database, which must not be in use.
func seedPrograms(ctx context.Context, w *world.World, model string, n int) (sites []program, err error) {
	d, err := open(ctx, w)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	_, port, err := net.SplitHostPort(w.HTTPS)
	if err != nil {
		return nil, err
	}
	err = d.Write(ctx, func(tx *db.Tx) error {
		for i := range n {
			p := program{id: db.NewID("site"), url: "https://seeded-app-" + strconv.Itoa(i) + ".localhost:" + port + "/"}
			if err := seedProgram(ctx, tx, model, p.id, "seeded-app-"+strconv.Itoa(i)); err != nil {
				return err
			}
			sites = append(sites, p)
		}
		_, err := tx.Exec(ctx,
			`UPDATE site_counts SET n = n + $2 WHERE (owner_id, type, status) = (SELECT owner_id, type, status FROM sites WHERE id = $1)`,
			model, n)
		return err
	})
	return sites, err
}

func seedProgram(ctx context.Context, tx *db.Tx, model, id, slug string) error {
	version, err := next(ctx, tx, "live_version")
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build,
			credential, needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at, search, run)
		SELECT $2, owner_id, $3, $3, type, runtime, status, status_reason, repository, branch, framework, build,
			credential, needs_redeploy, live_deployment, live_release, $4, created_at, updated_at, deleted_at, $3, run
		FROM sites WHERE id = $1`, model, id, slug, version)
	if err != nil {
		return err
	}
	if _, err = tx.Exec(ctx,
		`INSERT INTO slugs (slug, owner_id, site_id, released_at) SELECT $3, owner_id, $2, 0 FROM sites WHERE id = $1`,
		model, id, slug); err != nil {
		return err
	}
	deployment, err := seedDeployment(ctx, tx, model, id)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx,
		`UPDATE deployments SET bundle = (SELECT bundle FROM deployments WHERE site_id = $2 LIMIT 1) WHERE id = $1`,
		deployment, model)
	return err
}
