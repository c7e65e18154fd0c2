package edge

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/visit"
	"slipway/internal/tenant/limits"
)

// Once an owner reaches the limit, the owner's sites are slowed to their rate, including ready answers and previews,
// while other owners' sites are as fast as before. Too many concurrent responses get an error page. All of it is
// counted, and responses in progress return to full speed when the limit is raised.
func TestThrottle(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	w := start(t, func(c *Config) {
		c.Visits, c.VisitsEvery, c.Lender = visitsTo(l.add), 20*time.Millisecond, &purse{l: l}
	})
	admin := func(q string, args ...any) {
		t.Helper()
		if err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
			tx.Notify("paused")
			_, err := tx.Exec(t.Context(), q, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range []string{`DROP VIEW throttled_owners`, `CREATE TABLE throttled_owners (owner_id TEXT, month BIGINT, rate BIGINT, reached BOOLEAN, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	const size = 40_000
	release := w.publish(map[string]string{"index.html": strings.Repeat("0123456789", size/10), "small.txt": "small"})
	admin(`INSERT INTO live (host_label, site_id, owner_id, state, version) VALUES ('other', 's2', 'neighbor', 'empty', 0)`)
	w.live("s1", "blog", stateLive, release)
	w.live("s2", "other", stateLive, release)
	admin(`INSERT INTO previews (label, host_label, release) VALUES ('next', 'blog', $1)`, string(release))
	for range 3 { // the last one comes from memory
		w.get("https://blog.sites.test/").want(t, 200, "0123")
		w.get("https://other.sites.test/").want(t, 200, "0123")
	}

	// One byte per second, so that a slow response doesn't end before the test does.
	admin(`INSERT INTO throttled_owners VALUES ('owner', 1, 1, TRUE, $1, $2)`, db.Now().Add(-time.Hour), db.Now().Add(time.Hour))
	w.until("it is slow", func() bool { return w.table.hosts().find("blog").spent() })
	browser := w.client()
	browser.Timeout = time.Minute
	ask := func(url string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	first := ask("https://blog.sites.test/") // its first part is sent at once
	if _, err := io.ReadFull(first.Body, make([]byte, 4<<10)); err != nil || first.StatusCode != http.StatusOK {
		t.Fatal(first.Status, err)
	}
	slow := make(chan string, 20)
	for n := range 20 {
		go func() {
			url := "https://blog.sites.test/"
			if n == 0 {
				url = "https://next--blog.sites.test/"
			}
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			answer, err := browser.Do(r)
			if err != nil {
				slow <- err.Error()
				return
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			switch {
			case answer.StatusCode == 503 && answer.Header.Get("Retry-After") == "10" && strings.Contains(string(body), "answers slowly"):
				slow <- "refused"
			case answer.StatusCode == 200 && len(body) == size:
				slow <- "whole"
			default:
				slow <- fmt.Sprintf("%s with %d bytes: %v", answer.Status, len(body), err)
			}
		}()
	}
	for range 5 { // a visitor can have 16 at once, including the first one
		if got := <-slow; got != "refused" {
			t.Error(got)
		}
	}
	select {
	case got := <-slow:
		t.Errorf("a response is over: %s", got)
	default:
	}
	w.get("https://other.sites.test/").want(t, 200, "0123")

	admin(`DELETE FROM throttled_owners`)
	if rest, err := io.ReadAll(first.Body); err != nil || len(rest) != size-4<<10 {
		t.Errorf("%d bytes after the limit was raised: %v", len(rest), err)
	}
	for range 15 {
		if got := <-slow; got != "whole" {
			t.Error(got)
		}
	}
	w.until("it is fast again", func() bool { return !w.table.hosts().find("blog").spent() })
	w.get("https://blog.sites.test/").want(t, 200, "0123")

	// Until the view says that the limit is reached, a node that can't borrow bandwidth serves the site anyway.
	for _, q := range []string{`DROP VIEW capped_owners`, `CREATE TABLE capped_owners (owner_id TEXT, month BIGINT, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	admin(`INSERT INTO throttled_owners (owner_id, month, rate, reached) VALUES ('owner', $1, 1048576, $2)`, limits.Month(db.Now()), false)
	admin(`INSERT INTO capped_owners (owner_id, month) VALUES ('owner', $1)`, limits.Month(db.Now()))
	w.until("the cap is known", func() bool { return w.table.hosts().find("blog").lease != nil })
	w.get("https://blog.sites.test/small.txt").want(t, 200, "small")
}

// Bytes of slowed responses are counted like all others.
func TestThrottledBytesCount(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	w := start(t, func(c *Config) {
		c.Visits, c.VisitsEvery, c.Lender = visitsTo(l.add), 20*time.Millisecond, &purse{l: l}
	})
	for _, q := range []string{
		`DROP VIEW throttled_owners`, `CREATE TABLE throttled_owners (owner_id TEXT, month BIGINT, rate BIGINT, reached BOOLEAN, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`,
		fmt.Sprintf(`INSERT INTO throttled_owners (owner_id, month, rate, reached) VALUES ('owner', %d, 1048576, TRUE)`, limits.Month(db.Now())),
	} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": strings.Repeat("x", 30_000)}))
	if err := w.DB.Write(t.Context(), func(tx *db.Tx) error { tx.Notify("paused"); return nil }); err != nil {
		t.Fatal(err)
	}
	w.until("it is slow", func() bool { return w.table.hosts().find("blog").spent() })
	for range 3 {
		w.get("https://blog.sites.test/").want(t, 200, "xxx")
	}
	w.until("all is counted", func() bool { n := l.of("s1"); return n.Classes[0] == 3 && n.Bytes == 90_000 })
}
