package wordpress

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/site"
)

// A newly scheduled event runs when it is due, even before the previously next one. Whatever times a site reports, it
// isn't called all the time.
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
		before   time.Duration // time of the next event before the report
		says     string
		from, to time.Duration // range of its time afterwards
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
		t.Error("note takes a known or later time for news, or an earlier one not")
	}
	if !c.note("site", now.Add(time.Hour), now.Add(2*time.Second)) {
		t.Error("what comes after an event that has been is no news")
	}
	try := func(owner string) bool { _, ok := c.places.Try(fair.Who{Owner: owner}); return ok }
	for i := range cronOfOwner {
		if !try("ada") {
			t.Errorf("site %d of an owner waits for the others", i)
		}
	}
	if try("ada") || !try("ben") {
		t.Error("an owner has more than a share")
	}
}

// A site's slow events don't delay other sites of its owner.
func TestEventsOfOneOwner(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	began := make(chan string, 10)
	end := make(chan struct{})
	w := New(Config{DB: d, Sites: site.New(site.Config{DB: d, Domain: "sites.test"}), Programs: tasks(func(r *http.Request) (*http.Response, error) {
		began <- r.Host
		<-end
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"ran": 1, "next": 0}`))}, nil
	})})
	for i := range cronOfOwner + 1 {
		name := "site" + strconv.Itoa(i)
		for _, query := range []string{
			`INSERT INTO sites (id, owner_id, name, slug, type, runtime, status, status_reason, repository, branch, framework, build, credential,
			needs_redeploy, live_deployment, live_release, live_version, created_at, updated_at, deleted_at)
			VALUES ('` + name + `', 'own', '', '` + name + `', 'wordpress', 'wordpress', 'active', '', '', '', '', '{}', '', FALSE, 'dep', 'rel', 1, 0, 0, 0)`,
			`INSERT INTO wordpress_sites (site_id, owner_id, secret, title, admin_email, admin_user, locale, database_id, installed, xmlrpc, debug,
			maintenance, memory_mib, upload_mib, execution_seconds, next_cron, created_at)
			VALUES ('` + name + `', 'own', '', '', '', '', '', '', '6.1', FALSE, FALSE, FALSE, 1, 1, 1, ` + strconv.Itoa(i) + `, 0)`,
		} {
			if err := d.Admin(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
	}
	var running panics.Background
	w.events(t.Context(), &running)
	for range cronOfOwner { // all of them start before the first one ends
		<-began
	}
	w.events(t.Context(), &running)
	if len(began) != 0 {
		t.Error("an owner has more than a share")
	}
	close(end)
	running.Wait()
	w.events(t.Context(), &running)
	running.Wait()
	if host := <-began; host != "site"+strconv.Itoa(cronOfOwner)+".sites.test" {
		t.Errorf("the next is %s", host)
	}
}
