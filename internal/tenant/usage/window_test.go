package usage

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// subscribed inserts an owner's subscription.
func (w *world) subscribed(owner id.Owner, anchor db.Time) {
	w.t.Helper()
	ok(w.t, w.c.DB.Admin(w.t.Context(), fmt.Sprintf(`
		INSERT INTO billing_subscriptions (id, owner_id, version_id, next_version, status, anchor, period, period_start, period_end, trial_end,
			cancels, reason, unpaid_since, changes, next_at, created_at, ended_at, counts_from)
		VALUES ('sub_%s', '%s', '', '', 'active', %d, 0, 0, 0, 0, 0, '', 0, 0, 0, %d, 0, 0)`, owner, owner, anchor, anchor)))
}

func (w *world) send(s *Source, owner id.Owner, site id.Site, n int64) {
	w.t.Helper()
	s.Add(w.clock, owner, Bandwidth, site, n)
	ok(w.t, w.Write(w.t.Context(), s))
}

func (w *world) current(owner id.Owner) int64 {
	w.t.Helper()
	n, _, err := w.Current(w.t.Context(), w.c.DB, owner, Bandwidth)
	ok(w.t, err)
	return n
}

// A subscribed owner's usage counts from the start of the window, a pause lasts until the next window, and notices are
// sent once per window. Sealing moves no usage between windows. Other owners follow the calendar.
func TestSubscriptionsWindow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.clock = moment(2027, 2, 28, 8).Add(30 * time.Minute)
	w.serve(1000)
	told := &heard{}
	w.Connect(told)
	w.sites(ada, "site_a")
	w.sites(eve, "site_e")
	w.subscribed(ada, moment(2027, 1, 31, 9))
	edge := NewSource("edge/1")
	w.send(edge, ada, "site_a", 1000)
	w.send(edge, eve, "site_e", 500)
	want := func(when string, paused int, ofAda, ofEve int64) {
		t.Helper()
		if n := w.paused(); n != paused || w.current(ada) != ofAda || w.current(eve) != ofEve {
			t.Errorf("%s: %d sites are paused, %d and %d are used; want %d, %d, %d", when, n, w.current(ada), w.current(eve), paused, ofAda, ofEve)
		}
	}
	want("at the limit", 1, 1000, 500)
	w.clock = moment(2027, 2, 28, 9) - 1
	want("in its last millisecond", 1, 1000, 500)
	ok(t, w.armSmall(t.Context(), w.clock.Add(armAhead))) // as Run does continuously
	w.clock++
	want("exactly at the hour", 0, 0, 500)
	var armed int
	ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM capped_owners WHERE begins <= $1 AND ends > $1`, w.clock).Scan(&armed))
	if armed != 1 { // only existing accounts are armed ahead; these owners have none, and eve is armed by her usage
		t.Errorf("nodes borrow for %d owners", armed)
	}
	w.send(edge, ada, "site_a", 600)
	want("in the next window", 0, 600, 500)
	w.clock = moment(2027, 3, 1, 0)
	want("in the next month", 0, 600, 0)
	for range 3 {
		w.clock = w.clock.Add(2 * hour)
		ok(t, w.Tidy(t.Context()))
	}
	want("once all is sealed", 0, 600, 0)
	top, others, err := w.BySite(t.Context(), ada, Bandwidth, limits.Window{From: moment(2027, 2, 28, 9), To: moment(2027, 3, 31, 9)}, 5)
	if err != nil || len(top) != 1 || top[0].Quantity != 600 || others != 0 {
		t.Errorf("by site: %v, %d, %v", top, others, err)
	}
	if used, err := w.UsedBySite(t.Context(), w.c.DB, ada, "site_a", Bandwidth); err != nil || !used {
		t.Errorf("its site: %t, %v", used, err)
	}
	for name, q := range map[string]Query{
		"by default": {Step: day, Meters: []Meter{Bandwidth}}, "of a site": {Step: day, Meters: []Meter{Bandwidth}, Site: "site_a"},
	} {
		s, err := w.Series(t.Context(), ada, q)
		if err != nil || s[0].Total != 600 || s[0].Points[0].At != moment(2027, 2, 28, 0) {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	s, err := w.Series(t.Context(), ada, Query{Step: day, Meters: []Meter{Bandwidth}, From: moment(2027, 1, 31, 9), To: moment(2027, 2, 28, 9), Exact: true})
	if err != nil || s[0].Total != 1000 || len(s[0].Points) != 29 {
		t.Errorf("of the window before: %+v, %v", s, err)
	}
	list, err := w.Windows(t.Context(), ada, 3)
	if err != nil || len(list) != 3 || list[1] != (limits.Window{From: moment(2027, 1, 31, 9), To: moment(2027, 2, 28, 9)}) ||
		list[2] != (limits.Window{From: moment(2027, 1, 1, 0), To: moment(2027, 1, 31, 9)}) {
		t.Errorf("windows: %v, %v", list, err)
	}
	w.send(edge, ada, "site_a", 400)
	w.send(edge, ada, "site_a", 400)
	want("at the limit again", 1, 1400, 0)
	w.clock = moment(2027, 3, 31, 9)
	want("back on the 31st", 0, 0, 0)
	var got []string
	for _, x := range told.all {
		if x.Limit == 1000 && x.Window.From != moment(2027, 2, 1, 0) {
			got = append(got, fmt.Sprint(x.Window.From.Time().Month(), x.Percent))
		}
	}
	if fmt.Sprint(got) != "[January 100 February 50 February 100]" {
		t.Errorf("told of %v", got)
	}
}

// A subscription that begins, is canceled or begins again within a month changes the window at once, and no usage is
// lost. A pause written by an earlier version, which knows only months, applies until the owner's window is known.
func TestWindowChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.clock = moment(2027, 3, 10, 12)
	w.serve(1000)
	w.sites(ada, "site_a")
	edge := NewSource("edge/1")
	w.send(edge, ada, "site_a", 1000)
	now := func(when string, paused int, used int64) {
		t.Helper()
		ok(t, w.c.DB.Write(t.Context(), func(tx *db.Tx) error { return w.ReconsiderTx(t.Context(), tx, ada) }))
		if w.paused() != paused || w.current(ada) != used {
			t.Errorf("%s: %d sites are paused, %d used; want %d, %d", when, w.paused(), w.current(ada), paused, used)
		}
	}
	now("in the calendar month", 1, 1000)
	w.subscribed(ada, moment(2027, 3, 10, 12))
	now("with its first subscription", 1, 1000) // begins in the very same hour
	w.clock = moment(2027, 3, 10, 13)
	ok(t, w.c.DB.Admin(t.Context(), fmt.Sprintf(`UPDATE billing_subscriptions SET anchor = %d`, w.clock)))
	now("from the next hour on", 0, 0)
	w.send(edge, ada, "site_a", 10)
	ok(t, w.c.DB.Admin(t.Context(), fmt.Sprintf(`UPDATE billing_subscriptions SET status = 'expired', period_end = %d`, w.clock)))
	now("after it was canceled", 1, 1010)
	ok(t, w.c.DB.Admin(t.Context(), fmt.Sprintf(`UPDATE billing_subscriptions SET status = 'active', counts_from = %d`, moment(2027, 3, 1, 0))))
	now("with another one", 1, 1010)
	var rows int
	ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM usage_caps WHERE begins <= $1 AND ends > $1 AND meter = $2`, w.clock, Bandwidth).Scan(&rows))
	if rows != 1 {
		t.Errorf("%d windows are in force", rows)
	}
	ok(t, w.c.DB.Admin(t.Context(), `INSERT INTO usage_caps (owner_id, meter, month, most, warned, armed, reached) VALUES ('own_eve', 'bandwidth.bytes', 202703, 5, 100, TRUE, TRUE)`))
	w.sites(eve, "site_e")
	ok(t, w.reconsider(t.Context()))
	ok(t, w.c.DB.QueryRow(t.Context(), `SELECT count(*) FROM usage_caps WHERE owner_id = 'own_eve' AND NOT reached AND ends = $1`, moment(2027, 4, 1, 0)).Scan(&rows))
	if rows != 1 {
		t.Error("what a version before this one wrote isn't looked at")
	}
}

// Two nodes that lend and count around a renewal never lend more than each window's limit, even before the new window
// has any record.
func TestLendAcrossWindows(t *testing.T) {
	t.Parallel()
	const most = 10 << 20
	url := dbtest.URL(t)
	begin := moment(2027, 2, 28, 9)
	clock := begin - 1
	var nodes []*world
	for n := range 2 {
		w := &world{t: t}
		l := limits.New(limits.Settings{Defaults: map[limits.Name]int64{limits.Bandwidth: most}})
		w.Usage = at(New(Config{DB: dbtest.Open(t, url), Limits: l}), func() db.Time { return clock })
		nodes = append(nodes, w)
		if n == 0 {
			w.subscribed(ada, moment(2027, 1, 31, 9))
		}
	}
	lendAll := func() (sum int64) {
		var all sync.WaitGroup
		var mu sync.Mutex
		for n, w := range nodes {
			all.Go(func() {
				var has int64
				for {
					lent, err := (Lender{w.Usage, fmt.Sprint("node", n, clock)}).Lend(t.Context(), ada, has, true)
					if err != nil {
						t.Error(err)
					}
					has += lent
					if lent == 0 {
						break
					}
				}
				mu.Lock()
				defer mu.Unlock()
				sum += has
			})
		}
		all.Wait()
		return sum
	}
	if n := lendAll(); n != most {
		t.Errorf("%d are lent of %d", n, int64(most))
	}
	ok(t, nodes[0].c.DB.Admin(t.Context(), `DELETE FROM usage_loans`)) // all usage is stored
	nodes[0].merge(Row{Owner: ada, Meter: Bandwidth, Hour: clock, Source: "edge/a", Site: "site_1", Quantity: most})
	if n := lendAll(); n != 0 {
		t.Errorf("%d are lent beyond the limit", n)
	}
	clock = begin
	if n := lendAll(); n != most {
		t.Errorf("%d are lent in the next window of %d", n, int64(most))
	}
}
