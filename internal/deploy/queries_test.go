package deploy

import (
	"regexp"
	"testing"
)

// A deployment reads its site's row twice: locked as it starts, and locked as it goes live.
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
	if got := w.status(x.ID); got.Status != Success || !got.Current {
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
