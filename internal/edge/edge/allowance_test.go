package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/edge/fastpath"
	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
)

// purse is a Lender with a fixed amount that reads the stored usage from the ledger.
type purse struct {
	mu   sync.Mutex // guards most
	most int64
	l    *ledger
}

func (p *purse) Lend(_ context.Context, _ id.Owner, outstanding int64, more bool) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !more {
		return 0, nil
	}
	return max(0, min(p.most-p.l.of("s1").Bytes-outstanding, 4096)), nil
}

func (p *purse) Arm(context.Context, ...id.Owner) error { return nil }

func (p *purse) set(most int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = most
}

// An owner with little bandwidth left gets responses for that amount and no more, including those from memory. The site
// is served again within seconds after more is granted. The page sent instead isn't counted.
func TestAllowance(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	p := &purse{l: l}
	w := start(t, func(c *Config) {
		c.Visits, c.VisitsEvery, c.Lender = visitsTo(l.add), 20*time.Millisecond, p
	})
	for _, q := range []string{`DROP VIEW capped_owners`, `CREATE TABLE capped_owners (owner_id TEXT, month BIGINT, begins BIGINT DEFAULT 0, ends BIGINT DEFAULT 0)`} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	body := make([]byte, 1000)
	for i := range body {
		body[i] = 'a' + byte(i%7*3+i%5)
	}
	id := w.publish(map[string]string{"index.html": string(body)})
	w.live("s1", "blog", stateLive, id)
	for range 3 { // the last one comes from memory
		w.get("https://blog.sites.test/").want(t, 200, "")
	}
	var before visit.Counts
	w.until("they are counted", func() bool { before = l.of("s1"); return before.Classes[0] == 3 })
	each := before.Bytes / 3
	p.set(before.Bytes + 10*each)
	if err := w.DB.Write(t.Context(), func(tx *db.Tx) error {
		tx.Notify("paused")
		_, err := tx.Exec(t.Context(), `INSERT INTO capped_owners VALUES ('owner', 1, $1, $2)`, db.Now().Add(-time.Hour), db.Now().Add(time.Hour))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w.until("the cap is known", func() bool { return w.table.hosts().find("blog").lease != nil })
	ok := 0
	w.until("nothing is left", func() bool {
		status := w.get("https://blog.sites.test/").status
		if status == 200 {
			ok++
		}
		return status == 503
	})
	if ok != 10 {
		t.Errorf("%d responses of the 10 that were left", ok)
	}
	w.get("https://blog.sites.test/").want(t, 503, "used up its bandwidth")
	w.until("all is counted", func() bool { v := l.of("s1"); return v.Classes[0] == 13 && v.Classes[3] >= 2 })
	if n := l.of("s1").Bytes; n != before.Bytes+10*each {
		t.Errorf("%d bytes are counted, want %d", n, before.Bytes+10*each)
	}
	p.set(1 << 30)
	w.until("it is served again", func() bool { return w.get("https://blog.sites.test/").status == 200 })
	at := &fastpath.Place{Host: "blog.sites.test"} // from memory, as for other hosts
	if w.ready(at, []byte("/"), 0) == nil || !w.admit(at, each) || w.wayOf(at).taken == nil {
		t.Error("with a small limit nothing is answered from memory")
	}
	if w.admit(at, 1<<40) {
		t.Error("more is admitted than is left")
	}
}

// arming is a purse that writes a new owner's limit only when asked for it.
type arming struct {
	*purse
	mu    sync.Mutex // guards the rest
	db    *db.DB
	fails int
	asked []id.Owner
}

func (a *arming) Arm(ctx context.Context, owners ...id.Owner) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, owners...)
	if a.db == nil {
		return nil
	}
	a.fails--
	if a.fails >= 0 {
		return errors.New("the database is away")
	}
	return a.db.Admin(ctx, fmt.Sprintf(`INSERT INTO capped_owners VALUES ('owner', 1, %d, %d)`, db.Now().Add(-time.Hour), db.Now().Add(time.Hour)))
}

// An owner's first site answers no request before the owner's limit applies, even if applying it takes several
// attempts.
func TestNewOwnersAreCapped(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	a := &arming{purse: &purse{l: l, most: 1}}
	w := start(t, func(c *Config) {
		c.Visits, c.VisitsEvery, c.Lender = visitsTo(l.add), 20*time.Millisecond, a
	})
	for _, q := range []string{`DROP VIEW capped_owners`, `CREATE TABLE capped_owners (owner_id TEXT, month BIGINT, begins BIGINT, ends BIGINT)`} {
		if err := w.DB.Admin(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	a.mu.Lock()
	a.db, a.fails = w.DB, 2
	a.mu.Unlock()
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "hello"}))
	w.get("https://blog.sites.test/").want(t, 200, "hello") // an admitted response is sent whole
	for range 10 {
		w.get("https://blog.sites.test/").want(t, 503, "used up its bandwidth")
	}
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "again"}))
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) != 3 || a.asked[0] != "owner" { // another release doesn't ask again
		t.Errorf("asked for %v", a.asked)
	}
}

// If limits can't be applied (a full disk, for example), a starting edge serves its sites anyway. Later only the first
// sites of new owners wait.
func TestArmingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	l := &ledger{bySite: map[id.Site]visit.Counts{}}
	a := &arming{purse: &purse{l: l, most: 1 << 20}, fails: 1 << 30}
	site := func(d *db.DB, label string, version int64) {
		t.Helper()
		if err := d.Write(t.Context(), func(tx *db.Tx) error {
			tx.Notify("live")
			_, err := tx.Exec(t.Context(), `INSERT INTO live (host_label, site_id, owner_id, release, deployment_id, state, version)
				VALUES ($1, $1, 'first', '', 'dep_1', 'live', $2)`, label, version)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	w := start(t, func(c *Config) {
		c.Visits, c.VisitsEvery, c.Lender, a.db = visitsTo(l.add), 20*time.Millisecond, a, c.DB
		site(c.DB, "one", 1)
	})
	known := func(label string) bool { return w.table.hosts().find(label) != nil }
	if !known("one") {
		t.Fatal("a site waits for the limits of its owner at the start")
	}
	w.version.Store(1)
	w.row("s2", "blog", stateLive, "")
	site(w.DB, "two", w.version.Add(1))
	w.until("another site of an owner who is known", func() bool { return known("two") })
	if known("blog") {
		t.Error("the first site of a new owner is there before its limit")
	}
	a.mu.Lock()
	a.db = nil
	a.mu.Unlock()
	w.until("it comes", func() bool { return known("blog") })
}
