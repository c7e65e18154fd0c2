package account

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"slipway/internal/db"
	"slipway/internal/fault"
)

// Limit names something of which an owner may have so many.
type Limit string

// The limits there are.
const (
	LimitSites       Limit = "sites"
	LimitDomains     Limit = "domains"
	LimitDeployments Limit = "deployments.pending"
	LimitWebhooks    Limit = "webhooks"
	LimitKeys        Limit = "keys"
	LimitEnv         Limit = "env"   // of all sites; one has at most 1,000
	LimitHooks       Limit = "hooks" // of all sites; one has at most 100
	LimitDatabases   Limit = "databases"
)

// Unlimited is the limit of those who have none.
const Unlimited = math.MaxInt64

// defaultLimits hold where the operator says nothing.
var defaultLimits = map[Limit]int64{
	LimitSites: 5000, LimitDomains: 10_000, LimitDeployments: 5000, LimitWebhooks: 100, LimitKeys: 200, LimitEnv: 100_000, LimitHooks: 10_000, LimitDatabases: 100,
}

// limited names what a limit counts, for sentences.
var limited = map[Limit]string{
	LimitSites: "sites", LimitDomains: "domains", LimitDeployments: "pending deployments", LimitWebhooks: "webhooks",
	LimitKeys: "API keys", LimitEnv: "environment variables", LimitHooks: "deploy hooks", LimitDatabases: "databases",
}

// LimitSettings holds the operator's limits; see ParseLimits.
type LimitSettings struct {
	Defaults map[Limit]int64            // Optional: those that are absent are the service's own.
	Users    map[string]map[Limit]int64 // exceptions by e-mail address. Optional.
}

// Limits hold owners to how much they may have. Packages say how to count what is
// theirs with Count, and ask with RequireTx before they add to it. The zero value holds
// everybody to the service's own defaults.
type Limits struct {
	settings LimitSettings
	counts   map[Limit]countFunc
}

type countFunc func(ctx context.Context, r db.Reader, owner OwnerID) (int64, error)

// NewLimits returns limits by the operator's settings.
func NewLimits(s LimitSettings) *Limits { return &Limits{settings: s} }

// Count says how many of a limit's things an owner has. It is called while the program
// is put together.
func (l *Limits) Count(name Limit, count func(ctx context.Context, r db.Reader, owner OwnerID) (int64, error)) {
	if l.counts == nil {
		l.counts = map[Limit]countFunc{}
	}
	l.counts[name] = count
}

// CountRows is Count with a statement whose $1 is the owner.
func (l *Limits) CountRows(name Limit, query string) {
	l.Count(name, func(ctx context.Context, r db.Reader, owner OwnerID) (n int64, err error) {
		return n, r.QueryRow(ctx, query, owner).Scan(&n)
	})
}

// RequireTx returns nil when the owner may have that many more, else a Payment fault.
// Until the transaction ends nobody else adds to what the owner has: the limit holds
// exactly, however many ask at once.
func (l *Limits) RequireTx(ctx context.Context, tx *db.Tx, owner OwnerID, name Limit, more int64) error {
	if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id = $1`, owner); err != nil { // takes the row's lock in both dialects
		return fmt.Errorf("lock owner: %w", err)
	}
	most, err := l.of(ctx, tx, owner, name)
	if err != nil {
		return err
	}
	have, err := l.counts[name](ctx, tx, owner)
	if err != nil {
		return fmt.Errorf("count %s: %w", name, err)
	}
	if most == Unlimited || have+more <= most {
		return nil
	}
	return LimitReached(name, most, have, fmt.Sprintf("this account can have %d %s and has %d; delete some that are not used, or ask the operator for more", most, limited[name], have))
}

// LimitReached is the fault of a limit that is used up.
func LimitReached(name Limit, limit, current int64, details string) error {
	return &fault.Error{Kind: fault.Payment, Message: "Limit reached: " + limited[name], Details: details, Code: "limit_reached",
		Limit: &fault.Limit{Name: string(name), Limit: limit, Current: current}}
}

// LimitOf returns how many of a limit's things an owner may have.
func (l *Limits) LimitOf(ctx context.Context, r db.Reader, owner OwnerID, name Limit) (int64, error) {
	return l.of(ctx, r, owner, name)
}

// of is the owner's limit: the largest exception of their users, else the default.
func (l *Limits) of(ctx context.Context, r db.Reader, owner OwnerID, name Limit) (int64, error) {
	if len(l.settings.Users) > 0 {
		var email string
		rows, err := r.Query(ctx, `SELECT email FROM users WHERE owner_id = $1`, owner)
		found, err := db.Collect(rows, err, func(s db.Scanner) (string, error) { return email, s.Scan(&email) })
		if err != nil {
			return 0, fmt.Errorf("find limits of owner: %w", err)
		}
		if len(found) > 0 {
			if n, ok := l.settings.Users[email][name]; ok {
				return n, nil
			}
		}
	}
	if n, ok := l.settings.Defaults[name]; ok {
		return n, nil
	}
	return defaultLimits[name], nil
}

// LimitUse is a limit and how much of it is used.
type LimitUse struct {
	Name  Limit
	Limit int64 // or Unlimited
	Used  int64
}

// Use returns every limit of an owner by name.
func (l *Limits) Use(ctx context.Context, r db.Reader, owner OwnerID) (list []LimitUse, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		u := LimitUse{Name: name}
		if u.Limit, err = l.of(ctx, r, owner, name); err != nil {
			return nil, err
		}
		if u.Used, err = l.counts[name](ctx, r, owner); err != nil {
			return nil, fmt.Errorf("count %s: %w", name, err)
		}
		list = append(list, u)
	}
	return list, nil
}

// limitNames lists the limits, for messages.
func limitNames() string {
	var names []string
	for n := range defaultLimits {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
