package wordpress

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fair"
)

// An event that a site schedules runs when it is due, not with those that were next before;
// and whatever a site says, it is not looked at all the time.
func TestScheduledEvent(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	err := d.Admin(
		t.Context(),
		`INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug, maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
		VALUES ('site', 'own', '', '', '', '', '', '', '', FALSE, FALSE, FALSE, 1, 1, 1, 0, 0)`,
	)
	if err != nil {
		t.Fatal(err)
	}
	begun := db.Now()
	in := func(after time.Duration) string { return strconv.FormatInt(int64(begun.Add(after))/1000, 10) }
	for name, tt := range map[string]struct {
		before   time.Duration // when the next event was
		says     string
		from, to time.Duration // when it is
	}{
		"sooner":     {time.Hour, in(5 * time.Minute), 5*time.Minute - time.Second, 5 * time.Minute},
		"later":      {time.Hour, in(2 * time.Hour), time.Hour, time.Hour},
		"overdue":    {time.Hour, in(-time.Hour), cronTick, 10 * time.Minute},
		"far away":   {48 * time.Hour, in(47 * time.Hour), 48 * time.Hour, 48 * time.Hour},
		"no number":  {time.Hour, "soon", time.Hour, time.Hour},
		"too large":  {time.Hour, "9223372036854775807", time.Hour, time.Hour},
		"negative":   {time.Hour, "-1", time.Hour, time.Hour},
		"being done": {10 * time.Minute, in(time.Minute), time.Minute - time.Second, time.Minute},
	} {
		w := New(Config{DB: d})
		if err := d.Admin(
			t.Context(),
			`UPDATE wordpress_sites SET next_cron = `+strconv.FormatInt(int64(begun.Add(tt.before)), 10),
		); err != nil {
			t.Fatal(err)
		}
		g := through(w, "site", "site", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"X-Slipway-Cron": {tt.says}}, Body: http.NoBody}, nil
		})
		resp, err := g.RoundTrip(request("/"))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("X-Slipway-Cron") != "" {
			t.Errorf("%s: visitors read %v", name, resp.Header)
		}
		var next db.Time
		if err := d.QueryRow(t.Context(), `SELECT next_cron FROM wordpress_sites`).Scan(&next); err != nil {
			t.Fatal(err)
		}
		if next < begun.Add(tt.from) || next > begun.Add(tt.to) {
			t.Errorf("%s: the next event is in %s", name, next.Time().Sub(begun.Time()))
		}
	}

	c := newCrons()
	now := db.Now()
	if !c.note(
		"site",
		now.Add(time.Minute),
		now,
	) || c.note(
		"site",
		now.Add(time.Minute),
		now,
	) || c.note("site", now.Add(time.Hour), now) || !c.note("site", now.Add(time.Second), now) {
		t.Error("what is known already is news")
	}
	if !c.note("site", now.Add(time.Hour), now.Add(2*time.Second)) {
		t.Error("what comes after an event that has been is no news")
	}
	try := func(owner string) bool { _, ok := c.places.Try(fair.Who{Owner: owner}); return ok }
	if !try("ada") || try("ada") || !try("ben") {
		t.Error("an owner has events of one site at a time")
	}
}
