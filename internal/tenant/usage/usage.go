// Package usage owns each owner's use by the hour (bandwidth, requests, build time, storage, backups, memory and CPU of
// programs) and enforces limits per month: a calendar month (UTC) or one of the owner's subscription ([limits.Window]).
//
// A source (a process, an attempt of a build, a sample) stores the absolute quantity counted in an hour, and the larger
// quantity wins. So repeating a write changes nothing, sources never update each other's rows, and a killed process
// only loses what it had not stored.
//
// An hour is sealed two hours after its end: its rows are added to usage_hours and usage_days, which never change
// afterwards. Rows stored later for a sealed hour are added once, to the next sealed hour. Source rows are kept for 35
// days; without them a late quantity would count again.
package usage

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/limits"
)

// Meter names a measured quantity, with its unit.
type Meter string

const (
	Bandwidth Meter = "bandwidth.bytes"    // bodies of sites' responses
	Requests  Meter = "requests"           // sites' responses
	Build     Meter = "build.ms"           // time during which builds occupy a slot
	Storage   Meter = "storage.byte_hours" // releases and programs' storage
	Backups   Meter = "backup.byte_hours"  // backups
	Memory    Meter = "memory.mib_seconds" // of programs
	CPU       Meter = "cpu.ms"             // of programs
)

// Meters lists every meter in display order.
var Meters = []Meter{Bandwidth, Requests, Build, Storage, Backups, Memory, CPU}

const (
	hour = time.Hour
	day  = 24 * time.Hour

	sealAfter   = 2 * hour      // after the end of an hour
	keepSources = 35 * day      // source rows
	acceptFor   = 34 * day      // age limit for storing a source's hour; less than keepSources
	keepHours   = 100 * day     // sealed hours
	keepParts   = 3 * 366 * day // hours of divided days: longer than from the start of a year until its invoice is drafted
	keepSites   = 400 * day     // days by site; days by owner are kept forever
)

// Config holds what Usage needs.
type Config struct {
	DB     *db.DB
	Limits *limits.Limits // Optional: without it nothing is limited.
	Log    *slog.Logger
	Clock  db.Clock // Optional: defaults to the system clock.
}

// Usage is the service. It is safe for concurrent use.
type Usage struct {
	c      Config
	now    func() db.Time
	teller Teller // Optional
}

// New returns the service. It starts nothing: Work registers its job.
func New(c Config) *Usage {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	u := &Usage{c: c, now: db.Now}
	if c.Clock != nil {
		u.now = c.Clock.Now
	}
	if c.Limits != nil {
		for _, x := range caps {
			c.Limits.CountWithin(x.limit, func(ctx context.Context, r db.Reader, owner id.Owner) (int64, limits.Window, error) {
				n, w, err := u.Current(ctx, r, owner, x.meter)
				return n / x.each, w, err
			})
		}
	}
	return u
}

// Row is a source's count in an hour.
type Row struct {
	Owner    id.Owner
	Meter    Meter
	Hour     db.Time // any time within the hour
	Source   string
	Site     id.Site // Optional
	Quantity int64   // total since the start of the hour
}

// floor rounds t down to a multiple of span.
func floor(t db.Time, span time.Duration) db.Time { return t - t%db.Time(span.Milliseconds()) }

// rowsAtOnce caps the rows per statement, since PostgreSQL allows 65,535 parameters.
const rowsAtOnce = 500

// MergeTx stores sources' counts. Quantities not larger than the stored ones change nothing. The rows of one call must
// have different keys.
func (u *Usage) MergeTx(ctx context.Context, tx *db.Tx, rows []Row) error {
	oldest := u.now().Add(-acceptFor)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Quantity <= 0 || r.Hour < oldest })
	// Sorted, so that nodes can't deadlock.
	slices.SortFunc(rows, func(a, b Row) int { return strings.Compare(a.key(), b.key()) })
	for some := range slices.Chunk(rows, rowsAtOnce) {
		var q strings.Builder
		q.WriteString(`INSERT INTO usage_sources (owner_id, meter, hour, source, site_id, quantity, counted, moved) VALUES `)
		var args db.Args
		for i, r := range some {
			if i > 0 {
				q.WriteByte(',')
			}
			q.WriteString("(" + args.Add(r.Owner) + ", " + args.Add(r.Meter) + ", " + args.Add(floor(r.Hour, hour)) + ", " +
				args.Add(r.Source) + ", " + args.Add(string(r.Site)) + ", " + args.Add(r.Quantity) + ", 0, 0)")
		}
		q.WriteString(` ON CONFLICT (owner_id, meter, hour, source, site_id)
			DO UPDATE SET quantity = excluded.quantity WHERE usage_sources.quantity < excluded.quantity`)
		if _, err := tx.Exec(ctx, q.String(), args...); err != nil {
			return fmt.Errorf("write usage: %w", err)
		}
	}
	return u.enforceTx(ctx, tx, rows)
}

func (r Row) key() string {
	return fmt.Sprintf("%s\x00%s\x00%016x\x00%s\x00%s", r.Owner, r.Meter, int64(floor(r.Hour, hour)), r.Source, r.Site)
}

// ownersOf returns the sorted owners of a meter's rows.
func ownersOf(rows []Row, m Meter) (owners []id.Owner) {
	for _, r := range rows { // sorted by owner
		if r.Meter == m && (len(owners) == 0 || owners[len(owners)-1] != r.Owner) {
			owners = append(owners, r.Owner)
		}
	}
	return owners
}
