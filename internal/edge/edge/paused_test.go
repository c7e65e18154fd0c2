package edge

import (
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/limits"
)

// A site whose owner has used up the bandwidth is paused at all of its addresses, including cached responses, and
// resumes by itself. Other sites are served meanwhile.
func TestPausedSites(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, q := range []string{`DROP VIEW paused_sites`, `CREATE TABLE paused_sites (site_id TEXT, month BIGINT, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	id := w.publish(map[string]string{"index.html": "<h1>hello</h1>"})
	w.live("s1", "blog", stateLive, id)
	w.live("s2", "other", stateLive, id)
	if err := w.DB.Admin(t.Context(),
		`INSERT INTO previews (label, host_label, release) VALUES ('next', 'blog', '`+string(id)+`')`); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the last one comes from memory
		w.get("https://blog.sites.test/").want(t, 200, "hello")
	}
	w.get("https://next--blog.sites.test/").want(t, 200, "hello")

	set := func(q string, args ...any) {
		t.Helper()
		if err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
			tx.Notify("paused")
			_, err := tx.Exec(t.Context(), q, args...)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	status := func(url string) int { return w.get(url).status }
	now := db.At(time.Now())
	set(`INSERT INTO paused_sites (site_id, month) VALUES ('s2', $1)`, limits.Month(now)-1) // of another month
	set(`INSERT INTO paused_sites (site_id, month) VALUES ('s1', $1)`, limits.Month(now))
	w.until("it is paused", func() bool { return status("https://blog.sites.test/") == 503 })
	w.get("https://blog.sites.test/").want(t, 503, "used up its bandwidth").head(t, "Retry-After", "3600")
	w.until("its preview is paused", func() bool { return status("https://next--blog.sites.test/") == 503 })
	w.get("https://other.sites.test/").want(t, 200, "hello")
	// A new release doesn't resume a paused site.
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "<h1>again</h1>"}))
	w.get("https://blog.sites.test/").want(t, 503, "used up its bandwidth")
	// A pause applies only during its time window.
	in := func(d time.Duration) db.Time { return now.Add(d) }
	set(`UPDATE paused_sites SET month = 1, begins = $1, ends = $2 WHERE site_id = 's1'`, in(-time.Hour), in(-time.Second))
	w.until("its window is over", func() bool { return status("https://blog.sites.test/") == 200 })
	set(`INSERT INTO paused_sites VALUES ('s2', 1, $1, $2)`, in(time.Hour), in(2*time.Hour))
	set(`UPDATE paused_sites SET ends = $1 WHERE site_id = 's1'`, in(time.Hour))
	w.until("its window is now", func() bool { return status("https://blog.sites.test/") == 503 })
	w.get("https://other.sites.test/").want(t, 200, "hello")
	set(`DELETE FROM paused_sites`)
	w.until("it is back", func() bool { return status("https://blog.sites.test/") == 200 })
	w.get("https://blog.sites.test/").want(t, 200, "again")
}
