package dashboard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/usage"
)

// The usage page shows a bar per day and the largest consumers, only of the user's own account, without scripts.
func TestUsagePage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Harbor <Journal>")
	w.user("eve@example.test", false)
	source := usage.NewSource("dep_abc/1")
	source.Add(db.Now(), ada.Owner, usage.Bandwidth, s.ID, 3<<20)
	source.Add(db.Now(), ada.Owner, usage.Bandwidth, "site_gone", 1<<20)
	source.Add(db.Now(), ada.Owner, usage.Build, s.ID, 90_000)
	if err := w.dash.Usage.Write(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	b := w.as("ada@example.test")
	p := b.get("/account/usage")
	p.want(t, 200, "4.0 MiB", "Harbor &lt;Journal&gt;", "3.0 MiB", "site_gone (no longer in this account)", "1.5 min", "dep_abc", "0% of 200 min per month", "Show as table", "At the limit, all sites are paused.")
	if p.has("usage-cpu.ms") || p.has("usage-cpu") || !strings.Contains(b.get("/account").body, `href="/account/usage"`) {
		t.Error("meters without use are shown, or the page isn't linked")
	}
	b.get("/account/usage?month="+db.Now().Time().AddDate(0, -1, -5).Format("2006-01")).want(t, 200, "0 B")
	b.get("/account/usage?month=%00").want(t, 200, "4.0 MiB")
	if p := w.as("eve@example.test").get("/account/usage"); p.status != 200 || strings.Contains(p.body, "3.0 MiB") || strings.Contains(p.body, "Harbor") {
		t.Errorf("another user: %s", p)
	}

	// With a subscription, the page covers its month.
	day := db.Now().Time().UTC().AddDate(0, 0, -10)
	anchor := time.Date(day.Year(), day.Month(), day.Day(), 5, 0, 0, 0, time.UTC)
	if err := w.dash.DB.Admin(t.Context(), fmt.Sprintf(`
		INSERT INTO billing_subscriptions (id, owner_id, version_id, next_version, status, anchor, period, period_start, period_end, trial_end,
			cancels, reason, unpaid_since, changes, next_at, created_at, ended_at)
		VALUES ('sub_1', '%s', '', '', 'active', %d, 0, 0, 0, 0, 0, '', 0, 0, 0, 1, 0)`, ada.Owner, db.At(anchor))); err != nil {
		t.Fatal(err)
	}
	from := anchor.Format("January 2, 15:04")
	b.get("/account/usage").want(t, 200, "4.0 MiB", from+" to ", "Harbor &lt;Journal&gt;", "3.0 MiB", "dep_abc")
	b.get("/account/usage?month="+anchor.Format("2006-01-02")).want(t, 200, "4.0 MiB")
	b.get("/account/usage?month="+anchor.Format("2006-01")).want(t, 200, anchor.Format("Jan 2"))
	b.get("/account").want(t, 200, "count from "+from+" to ")
}
