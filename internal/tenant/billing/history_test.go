package billing

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// ran is a billing period that the test observed.
type ran struct {
	start, end, planned db.Time
	since               db.Time // start of usage counting
	number              int64
	versions            []chosen
}

// chosen is a plan version and the time from which it applies.
type chosen struct {
	version plan.VersionID
	from    db.Time
}

// lineOf identifies an invoice line that charges usage.
type lineOf struct {
	version  plan.VersionID
	from, to db.Time
	meter    usage.Meter
	tier     int
}

type charged struct{ quantity, amount int64 }

// life is one owner's random history.
type life struct {
	owner   id.Owner
	r       *rand.Rand
	seen    map[SubscriptionID]Subscription
	periods []*ran
	open    map[SubscriptionID]*ran
	budgets []Balance
	since   []db.Time // times at which budgets changed
	made    map[usage.Meter]int64
	sealed  map[usage.Meter]map[db.Time]int64
}

// saw compares a subscription with its last observed state and records which version applies from now on.
func (l *life) saw(s Subscription, now db.Time) {
	was, known := l.seen[s.ID]
	l.seen[s.ID] = s
	if s.trial() {
		return
	}
	p := l.open[s.ID]
	if p == nil || p.start != s.Start {
		first := s.Version
		if p != nil {
			p.end = min(p.end, s.Start)
		}
		if known && s.Start < now && was.End == s.Start { // renewed, with the scheduled version
			first = cmp.Or(was.Next, was.Version)
		}
		p = &ran{start: s.Start, end: s.End, planned: s.End, number: s.period, versions: []chosen{{first, s.Start}}}
		l.periods, l.open[s.ID] = append(l.periods, p), p
	}
	if s.End > p.planned { // the interval changed in the hour in which the period began
		p.planned = s.End
	}
	p.end = s.End
	last := &p.versions[len(p.versions)-1]
	switch at := max(now, p.start); {
	case last.version == s.Version:
	case last.from == at:
		last.version = s.Version
	default:
		p.versions = append(p.versions, chosen{s.Version, at})
	}
}

// naive computes hour by hour which usage lines the owner's invoices must have, and what exceeds each period's budget.
func (l *life) naive(t *testing.T, versions map[plan.VersionID]plan.Version) (want map[lineOf]charged, capped map[db.Time]int64) {
	want, capped = map[lineOf]charged{}, map[db.Time]int64{}
	var before *ran // the last period with rates and usage
	slices.SortStableFunc(l.periods, func(x, y *ran) int { return cmp.Compare(x.start, y.start) })
	for _, p := range l.periods {
		var rated bool
		for _, v := range p.versions {
			rated = rated || v.from < p.end && len(versions[v.version].Rates) > 0
		}
		if p.start >= p.end || !rated {
			continue
		}
		p.since = p.start
		if before != nil && p.number == 0 && before.planned > p.start && before.end < before.planned {
			p.since = before.since // also across periods that ended early
		}
		before = p
		var sum int64
		of := map[lineOf]int64{}
		for m, hours := range l.sealed {
			var q int64
			for _, h := range slices.Sorted(maps.Keys(hours)) {
				if h < p.since || h >= p.end {
					continue
				}
				n := hours[h]
				for i, v := range p.versions {
					k := lineOf{version: v.version, from: v.from, to: p.end, meter: m}
					if i+1 < len(p.versions) {
						k.to = min(p.end, p.versions[i+1].from)
					}
					if h < k.from || h >= k.to {
						continue
					}
					rate := versions[v.version].Rates[m]
					low := rate.Included
					for tier, x := range rate.Tiers {
						high := rate.Included + x.UpTo
						if x.UpTo == 0 {
							high = 1 << 62
						}
						if in := min(q+n, high) - max(q, low); in > 0 {
							k.tier = tier
							of[k] += in
						}
						low = high
					}
				}
				q += n
			}
		}
		for k, n := range of {
			x := versions[k.version].Rates[k.meter].Tiers[k.tier]
			twice := new(big.Int).Mul(big.NewInt(2*n), big.NewInt(x.Amount))
			twice.Add(twice, big.NewInt(x.Per))
			amount := twice.Div(twice, big.NewInt(2*x.Per)).Int64()
			if _, has := want[k]; has {
				t.Errorf("%s: the test has two of %+v", l.owner, k)
			}
			want[k] = charged{n, amount}
			sum += amount
		}
		var budget int64
		currency := versions[p.versions[0].version].Currency
		for i, x := range l.budgets {
			until := db.Time(1 << 62)
			if i+1 < len(l.budgets) {
				until = l.since[i+1]
			}
			if x.Currency == currency && l.since[i] < p.end && until > p.start {
				budget = max(budget, x.Amount)
			}
		}
		if sum > budget {
			capped[p.start] += sum - budget
		}
	}
	return want, capped
}

// histories runs the random histories of several owners at the same time.
type histories struct {
	*world
	lives    map[id.Owner]*life
	versions map[plan.VersionID]plan.Version
	names    []plan.Choice
	read     db.Time
}

// look updates lives from their current subscriptions.
func (w *histories) look(only ...id.Owner) {
	w.t.Helper()
	query, args := `SELECT `+subscriptionColumns+` FROM billing_subscriptions`, db.Args{}
	if len(only) > 0 {
		query += ` WHERE owner_id = ` + args.Add(only[0])
	}
	rows, err := w.db.Query(w.t.Context(), query+` ORDER BY created_at, id`, args...)
	list, err := db.Collect(rows, err, scanSubscription)
	ok(w.t, err)
	for _, s := range list {
		w.lives[s.Owner].saw(s, floor(w.clock, hour))
	}
}

// act performs a random action of the owner, or of an operator for the owner.
func (w *histories) act(l *life) {
	w.t.Helper()
	err := w.db.Write(w.t.Context(), func(tx *db.Tx) (err error) {
		ctx := w.t.Context()
		switch l.r.IntN(12) {
		case 0, 1:
			_, _, err = w.DoTx(ctx, tx, l.owner, Action{Kind: Subscribe, Choice: w.names[l.r.IntN(len(w.names))]}, "")
		case 2, 3, 4, 5, 6:
			_, _, err = w.DoTx(ctx, tx, l.owner, Action{Kind: Change, Choice: w.names[l.r.IntN(len(w.names))]}, "")
		case 7:
			_, _, err = w.DoTx(ctx, tx, l.owner, Action{Kind: Cancel}, "")
		case 8:
			_, _, err = w.DoTx(ctx, tx, l.owner, Action{Kind: Cancel, Now: true}, "")
		case 9:
			_, err = w.ResumeTx(ctx, tx, l.owner)
		case 10:
			_, err = w.EndTx(ctx, tx, l.owner, l.r.IntN(2) == 0)
		case 11:
			x := Balance{"EUR", l.r.Int64N(3000)}
			if l.r.IntN(3) == 0 {
				x.Currency = "USD"
			}
			l.budgets, l.since = append(l.budgets, x), append(l.since, w.clock)
			err = w.SetBudgetTx(ctx, tx, l.owner, x)
		}
		return err
	})
	if err != nil && fault.As(err) == nil {
		w.t.Fatal(err)
	}
	w.look(l.owner)
}

// seal seals hours and records what was sealed since the last call.
func (w *histories) seal() {
	w.t.Helper()
	ok(w.t, w.c.Usage.Tidy(w.t.Context()))
	to, err := w.c.Usage.Sealed(w.t.Context(), w.db)
	ok(w.t, err)
	rows, err := w.db.Query(w.t.Context(), `SELECT owner_id, meter, hour, quantity FROM usage_hours WHERE hour >= $1 AND hour < $2`, w.read, to)
	_, err = db.Collect(rows, err, func(s db.Scanner) (_ int, err error) {
		var o id.Owner
		var m usage.Meter
		var at db.Time
		var n int64
		err = s.Scan(&o, &m, &at, &n)
		if l := w.lives[o]; l.sealed[m] == nil {
			l.sealed[m] = map[db.Time]int64{}
		}
		w.lives[o].sealed[m][at] = n
		return 0, err
	})
	ok(w.t, err)
	w.read = to
}

func newHistories(t *testing.T, seed uint64, n int) *histories {
	w := &histories{world: newWorld(t), lives: map[id.Owner]*life{}, versions: map[plan.VersionID]plan.Version{}}
	w.write(func(tx *db.Tx) error {
		s, err := w.Settings(t.Context(), tx, "")
		s.DueDays, s.GraceDays, s.PausedDays = 2, 3, 9
		if err != nil {
			return err
		}
		return w.SaveSettingsTx(t.Context(), tx, "", s)
	})
	steps := []money.Tier{{UpTo: 1000, Amount: 3, Per: 2}, {UpTo: 1500, Amount: 7, Per: 5}, {Amount: 1, Per: 3}}
	for _, x := range []struct {
		name     string
		amount   int64
		term     plan.Term
		currency money.Currency
		trial    int64
		rates    map[usage.Meter]money.Rate
	}{
		{"free", 0, plan.Month, "EUR", 0, map[usage.Meter]money.Rate{usage.Requests: {Included: 300, Tiers: steps}}},
		{"small", 1000, plan.Month, "EUR", 5, map[usage.Meter]money.Rate{usage.Requests: {Included: 500, Tiers: steps}, usage.Memory: {Tiers: steps[2:]}}},
		{"large", 2000, plan.Month, "EUR", 0, map[usage.Meter]money.Rate{usage.Requests: {Included: 2000, Tiers: steps[2:]}, usage.Bandwidth: {Tiers: steps}}},
		{"flat", 3000, plan.Month, "EUR", 0, nil},
		{"top", 5000, plan.Month, "EUR", 3, map[usage.Meter]money.Rate{usage.Memory: {Included: 100, Tiers: steps[1:]}}},
		{"dollar", 1500, plan.Month, "USD", 0, map[usage.Meter]money.Rate{usage.Requests: {Tiers: steps[2:]}}},
		{"small", 9000, plan.Year, "EUR", 0, map[usage.Meter]money.Rate{usage.Requests: {Included: 4000, Tiers: steps}, usage.Memory: {Tiers: steps[2:]}}},
		{"large", 21_000, plan.Year, "EUR", 0, map[usage.Meter]money.Rate{usage.Requests: {Included: 9000, Tiers: steps}}},
	} {
		v := w.plan(x.name, x.amount, func(t *plan.Terms) { t.Term, t.Currency, t.TrialDays, t.Rates = x.term, x.currency, x.trial, x.rates })
		w.versions[v.ID] = v
		w.names = append(w.names, plan.Choice{Plan: x.name, Term: x.term, Currency: x.currency})
	}
	for i := range n {
		o := id.Owner(fmt.Sprintf("own_%d_%d", seed, i))
		w.lives[o] = &life{
			owner: o, r: rand.New(rand.NewPCG(seed, uint64(i))), seen: map[SubscriptionID]Subscription{}, open: map[SubscriptionID]*ran{},
			made: map[usage.Meter]int64{}, sealed: map[usage.Meter]map[db.Time]int64{},
		}
	}
	return w
}

// In random histories of subscriptions, plan and interval changes, trials, pauses, outages, site transfers and late
// reports, every sealed hour of every meter is charged on exactly one invoice at the rates of that hour. The total
// matches a naive computation. SLIPWAY_HISTORIES sets the number of histories; SLIPWAY_HISTORY repeats the one of a
// seed.
func TestHistories(t *testing.T) {
	t.Parallel()
	const together = 100
	count := 200
	if s := os.Getenv("SLIPWAY_HISTORIES"); s != "" {
		var err error
		count, err = strconv.Atoi(s)
		ok(t, err)
	}
	seeds := make([]uint64, count/together)
	for n := range seeds {
		seeds[n] = uint64(n)
	}
	if s := os.Getenv("SLIPWAY_HISTORY"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		ok(t, err)
		seeds = []uint64{n}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("SLIPWAY_HISTORY=", seed), func(t *testing.T) {
			t.Parallel()
			runHistories(t, seed, together)
		})
	}
}

func runHistories(t *testing.T, seed uint64, n int) {
	w, r := newHistories(t, seed, n), rand.New(rand.NewPCG(seed, 49))
	owners := slices.Sorted(maps.Keys(w.lives))
	sites := slices.Clone(owners) // owner of each site
	months, stride := 4, 16
	if seed%8 == 1 { // longer than hourly usage is kept
		months, stride = 15, 60
	}
	w.clock = moment(2027, time.Month(1+r.IntN(12)), 1+r.IntN(31), r.IntN(24))
	w.seals()
	w.read = floor(w.clock.Add(-2*hour), hour)
	counted := map[usage.Row]int64{}
	var down db.Time // billing jobs are down until then
	over := false
	step := func(limit int) {
		from := w.clock
		w.clock = w.clock.Add(time.Duration(1+r.IntN(limit*60)) * time.Minute)
		var rows []usage.Row
		for i := range sites {
			if r.IntN(40) == 0 {
				sites[i] = owners[r.IntN(len(owners))]
			}
			if over || r.IntN(12) > 0 {
				continue
			}
			at := from + db.Time(r.Int64N(int64(w.clock-from)))
			if r.IntN(4) == 0 { // reported late
				at = at.Add(-time.Duration(r.IntN(40)) * hour)
			}
			row := usage.Row{Owner: sites[i], Meter: []usage.Meter{usage.Requests, usage.Memory, usage.Requests, usage.Bandwidth}[r.IntN(4)], Hour: floor(at, hour), Source: fmt.Sprint("site", i)}
			n := 1 + r.Int64N(400)
			w.lives[row.Owner].made[row.Meter] += n
			counted[row] += n
			row.Quantity = counted[usage.Row{Owner: row.Owner, Meter: row.Meter, Hour: row.Hour, Source: row.Source}]
			rows = append(rows, row)
		}
		w.write(func(tx *db.Tx) error { return w.c.Usage.MergeTx(t.Context(), tx, rows) })
		if w.clock >= down {
			w.seal()
			ok(t, w.Tick(t.Context()))
			w.look()
		}
	}
	for end := w.clock.Add(time.Duration(months) * 30 * day); w.clock < end; {
		step(stride)
		if r.IntN(60) == 0 {
			down = w.clock.Add(time.Duration(r.IntN(100)) * hour)
		}
		for _, o := range owners {
			l := w.lives[o]
			if len(l.seen) == 0 && l.r.IntN(20) == 0 || l.r.IntN(700/stride) == 0 {
				w.act(l)
				for l.r.IntN(3) == 0 { // several actions within an hour
					w.act(l)
				}
			}
			if l.r.IntN(1500/stride) == 0 {
				w.payAll(o)
				w.look(o)
			}
		}
	}
	for _, o := range owners {
		err := w.db.Write(t.Context(), func(tx *db.Tx) error { _, err := w.EndTx(t.Context(), tx, o, true); return err })
		if err != nil && !fault.Is(err, fault.NotFound) {
			t.Fatal(err)
		}
	}
	w.look()
	down, over = 0, true
	for drafts := 1; drafts > 0; {
		step(3)
		drafts = 0
		for _, o := range owners {
			for _, i := range w.invoices(o) {
				if i.Status != Draft {
					continue
				}
				drafts++
				if i.Held && i.digest != "" {
					w.write(func(tx *db.Tx) error { return w.FinalizeTx(t.Context(), tx, string(i.ID)) })
				}
			}
		}
	}
	for _, o := range owners {
		w.compare(w.lives[o])
	}
	found, err := w.Problems(t.Context())
	ok(t, err)
	for _, x := range found {
		t.Error(x)
	}
}

// compare checks an owner's invoices against the naive computation.
func (w *histories) compare(l *life) {
	t := w.t.(*testing.T)
	want, capped := l.naive(t, w.versions)
	has, over := map[lineOf]charged{}, map[db.Time]int64{}
	for m, n := range l.made {
		for _, x := range l.sealed[m] {
			n -= x
		}
		if n != 0 {
			t.Errorf("%s: %d of %s were used and not sealed", l.owner, n, m)
		}
	}
	for _, i := range w.invoices(l.owner) {
		if again, err := w.Recompute(t.Context(), w.db, i.Number); err != nil || !again.Same {
			t.Errorf("%s: %s can't be computed again: %v", l.owner, i.Number, err)
		}
		for _, x := range i.Lines() {
			from, _ := time.Parse(time.RFC3339, x.From)
			to, _ := time.Parse(time.RFC3339, x.To)
			if v := w.versions[x.Version]; v.Currency != i.Currency {
				t.Errorf("%s: %s of %s is on an invoice in %s", l.owner, x.Kind, v.Plan, i.Currency)
			}
			switch x.Kind {
			case document.Usage:
				k := lineOf{x.Version, db.At(from), db.At(to), usage.Meter(x.Meter), x.Tier - 1}
				if _, twice := has[k]; twice {
					t.Errorf("%s: %+v is charged twice", l.owner, k)
				}
				has[k] = charged{x.Quantity, x.Amount}
			case document.Cap:
				over[db.At(from)] -= x.Amount
			}
		}
	}
	for k, x := range want {
		if has[k] != x {
			t.Errorf("%s: %s of %s tier %d, %v to %v: charged %+v, want %+v", l.owner, k.meter, w.versions[k.version].Plan, k.tier, k.from, k.to, has[k], x)
		}
	}
	for k, x := range has {
		if _, due := want[k]; !due {
			t.Errorf("%s: %s of %s tier %d, %v to %v: charged %+v, want nothing", l.owner, k.meter, w.versions[k.version].Plan, k.tier, k.from, k.to, x)
		}
	}
	if !maps.Equal(over, capped) {
		t.Errorf("%s: beyond budgets %v, want %v", l.owner, over, capped)
	}
	if t.Failed() && !testing.Short() {
		text, _ := json.Marshal(l.seen)
		t.Logf("%s: %s", l.owner, text)
		for _, p := range l.periods {
			t.Logf("%s: period %v to %v (planned %v): %v", l.owner, p.start, p.end, p.planned, p.versions)
		}
		t.FailNow()
	}
}
