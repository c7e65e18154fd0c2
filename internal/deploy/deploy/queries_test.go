package deploy

import (
	"regexp"
	"strings"
	"testing"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
)

// A deployment reads its site's row twice, with a lock each time: when it starts and when it goes live.
func TestDeploymentReadsItsSiteTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.commit("site", map[string]string{"index.html": "two"})
	w.stop()
	x := w.trigger(s.ID, Trigger{})
	w.asked.mu.Lock()
	w.asked.on = true
	w.asked.mu.Unlock()
	ok(t, w.work(t.Context(), Run{x.ID}, 1))
	w.asked.mu.Lock()
	w.asked.on = false
	list := w.asked.list
	w.asked.mu.Unlock()
	if got := w.status(x.ID); got.Status != deployment.Success || !got.Current {
		t.Fatalf("got %+v", got)
	}
	read := regexp.MustCompile(`(FROM|JOIN) (sites|open_sites)\b|UPDATE sites SET live_version = live_version`)
	var reads []string
	for _, q := range list {
		if read.MatchString(q) {
			reads = append(reads, q)
		}
	}
	if len(reads) != 2 {
		t.Errorf("the site's row is read %d times, want 2:\n%q", len(reads), reads)
	}
	if len(list) < 10 {
		t.Errorf("only %d statements were seen", len(list))
	}
}

// A push reads only the site's unfinished deployments, by an index, however many have ended.
func TestPushReadsOpenDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.commit("site", map[string]string{"index.html": "one"})
	s := w.live(w.site("git.test/acme/site").ID)
	w.stop()
	if !w.db.Single() {
		t.Skip("PostgreSQL plans by what is in the table")
	}
	w.asked.mu.Lock()
	w.asked.on = true
	w.asked.mu.Unlock()
	for range 2 {
		w.write(func(tx *db.Tx) error {
			_, err := w.PushTx(t.Context(), tx, s, Trigger{Branch: "main", Target: deployment.Production})
			return err
		})
	}
	w.asked.mu.Lock()
	w.asked.on = false
	list := w.asked.list
	w.asked.mu.Unlock()
	looks := regexp.MustCompile(`(?i)FROM deployments( d)?\b[^;]*\b(d\.)?site_id = \$`)
	checked := map[string]bool{}
	for _, q := range list {
		if !looks.MatchString(q) || checked[q] {
			continue
		}
		checked[q] = true
		rows, err := w.db.Query(t.Context(), "EXPLAIN QUERY PLAN "+q, make([]any, strings.Count(q, "$"))...)
		steps, err := db.Collect(rows, err, func(r db.Scanner) (step string, err error) {
			var a, b, c int
			return step, r.Scan(&a, &b, &c, &step)
		})
		if err != nil || !strings.Contains(strings.Join(steps, " "), "deployments_open") {
			t.Errorf("%s: %q, %v", q, steps, err)
		}
	}
	if len(checked) < 3 {
		t.Errorf("only %d statements were seen: %q", len(checked), list)
	}
}
