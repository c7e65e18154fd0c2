// Package usage owns what each owner uses by the hour (bandwidth, requests, build time, storage, backups, memory
// and CPU of programs) and the limits of a month that follow from it: a calendar month (UTC), or one of
// the owner's subscription (limits.Window).
//
// A source (a process, an attempt of a build, a sample) writes the absolute quantity that it has counted in an
// hour, and the larger quantity wins. So a write that is repeated changes nothing, sources never add to each
// other's rows, and a process that is killed loses what it had not written.
//
// Two hours after its end an hour is sealed: added to usage_hours and usage_days, which never change from then on.
// What is written to a sealed hour later is added to the next hour that is sealed, once. The rows of sources stay
// for 35 days: without them a late quantity would count again.
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

// Meter names something that is measured, with its unit.
type Meter string

// The meters there are.
const (
	Bandwidth Meter = "bandwidth.bytes"    // bodies of responses of sites
	Requests  Meter = "requests"           // responses of sites
	Build     Meter = "build.ms"           // time that builds hold their slot
	Storage   Meter = "storage.byte_hours" // releases, and what programs store
	Backups   Meter = "backup.byte_hours"  // what backups store
	Memory    Meter = "memory.mib_seconds" // of programs
	CPU       Meter = "cpu.ms"             // of programs
)

// Meters are all of them, in the order in which they are shown.
var Meters = []Meter{Bandwidth, Requests, Build, Storage, Backups, Memory, CPU}

const (
	hour = time.Hour
	day  = 24 * time.Hour

	sealAfter   = 2 * hour      // of the end of an hour
	keepSources = 35 * day      // rows of sources
	acceptFor   = 34 * day      // a source's hour is written no later
	keepHours   = 100 * day     // sealed hours
	keepParts   = 3 * 366 * day // those of days that are divided: longer than from the beginning of a year until its invoice is drafted
	keepSites   = 400 * day     // days by site; days by owner stay
)

// Config holds what Usage needs.
type Config struct {
	DB     *db.DB
	Limits *limits.Limits // Optional: without it nothing is limited.
	Log    *slog.Logger
	Clock  db.Clock // Optional: the machine's.
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

// Row is what a source has counted in an hour.
type Row struct {
	Owner    id.Owner
	Meter    Meter
	Hour     db.Time // any moment of it
	Source   string
	Site     id.Site // Optional
	Quantity int64   // in all, since the hour began
}

// floor is the beginning of the stretch that t lies in.
func floor(t db.Time, span time.Duration) db.Time { return t - t%db.Time(span.Milliseconds()) }

// rowsAtOnce bounds a statement: PostgreSQL takes 65,535 values.
const rowsAtOnce = 500

// MergeTx writes what sources have counted. Quantities that are no larger than those that are there change nothing.
// Rows of one call differ in their keys.
func (u *Usage) MergeTx(ctx context.Context, tx *db.Tx, rows []Row) error {
	oldest := u.now().Add(-acceptFor)
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Quantity <= 0 || r.Hour < oldest })
	// Sorted, so that nodes never wait for each other in a ring.
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

// ownersOf returns whose rows of a meter there are, sorted.
func ownersOf(rows []Row, m Meter) (owners []id.Owner) {
	for _, r := range rows { // by owner
		if r.Meter == m && (len(owners) == 0 || owners[len(owners)-1] != r.Owner) {
			owners = append(owners, r.Owner)
		}
	}
	return owners
}
