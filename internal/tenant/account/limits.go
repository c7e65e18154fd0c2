package account

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Limit names something of which an owner may have so much.
type Limit string

// The limits there are.
const (
	LimitSites        Limit = "sites"
	LimitDomains      Limit = "domains"
	LimitDeployments  Limit = "deployments.pending"
	LimitWebhooks     Limit = "webhooks"
	LimitKeys         Limit = "keys"
	LimitEnv          Limit = "env"             // of all sites; one has at most 1,000
	LimitHooks        Limit = "hooks"           // of all sites; one has at most 100
	LimitDatabases    Limit = "databases"       // of all sites; one has at most 20
	LimitPrograms     Limit = "sites.running"   // on each node, commands and background processes included
	LimitPreviews     Limit = "previews"        // preview addresses of all sites; one has at most 100
	LimitStorage      Limit = "storage.bytes"   // files of stored releases, and what programs store
	LimitBuildMinutes Limit = "build.minutes"   // in a calendar month, UTC
	LimitBandwidth    Limit = "bandwidth.bytes" // in a calendar month, UTC
	LimitCaches       Limit = "caches.bytes"    // of builds; what exceeds it is dropped, the oldest first
	LimitBackups      Limit = "backups.bytes"   // that backups added to where they are stored
	LimitTeams        Limit = "teams"           // that a person made and owns
	LimitMembers      Limit = "members"         // of a team, invitations and guests included
	LimitOAuthApps    Limit = "oauth.apps"      // that the account registered
	LimitOAuthGrants  Limit = "oauth.grants"    // that its people gave to apps, one for each device
)

// Unlimited is the limit of those who have none.
const Unlimited = math.MaxInt64

// limitKind describes a limit.
type limitKind struct {
	byDefault int64  // where the operator says nothing
	name      string // what it counts, for sentences
	verb      string // what an account does with it; empty: have
	advice    string // how there comes to be room; empty: by deleting
}

const nextMonth = "it starts at zero with the next calendar month"

// limitKinds describes every limit.
var limitKinds = map[Limit]limitKind{
	LimitSites:        {byDefault: 5000, name: "sites"},
	LimitDomains:      {byDefault: 10_000, name: "domains"},
	LimitDeployments:  {byDefault: 5000, name: "pending deployments"},
	LimitWebhooks:     {byDefault: 100, name: "webhooks"},
	LimitKeys:         {byDefault: 200, name: "API keys"},
	LimitEnv:          {byDefault: 100_000, name: "environment variables"},
	LimitHooks:        {byDefault: 10_000, name: "deploy hooks"},
	LimitDatabases:    {byDefault: 100, name: "databases"},
	LimitPrograms:     {byDefault: 100, name: "running programs", verb: "run", advice: "stop sites or let them sleep"},
	LimitPreviews:     {byDefault: 5000, name: "preview addresses", advice: "delete branches or sites that are not used"},
	LimitStorage:      {byDefault: 1 << 40, name: "stored files", verb: "store", advice: "delete sites that are not used"},
	LimitBuildMinutes: {byDefault: 50_000, name: "build minutes", verb: "use", advice: nextMonth},
	LimitBandwidth:    {byDefault: 10 << 40, name: "bandwidth", verb: "use", advice: nextMonth},
	LimitCaches:       {byDefault: 100 << 30, name: "build caches", verb: "store"},
	LimitBackups:      {byDefault: 100 << 30, name: "backups", verb: "store"},
	LimitTeams:        {byDefault: 20, name: "teams"},
	LimitMembers:      {byDefault: 1000, name: "members", advice: "remove members and invitations that are not needed"},
	LimitOAuthApps:    {byDefault: 50, name: "OAuth apps"},
	LimitOAuthGrants:  {byDefault: 500, name: "authorized apps", advice: "revoke apps that are not used"},
}

// Bytes reports whether the limit counts bytes.
func (n Limit) Bytes() bool { return strings.HasSuffix(string(n), ".bytes") }

// Title is the limit's name for people.
func (n Limit) Title() string {
	name := limitKinds[n].name
	return strings.ToUpper(name[:1]) + name[1:]
}

// amount writes so much of what the limit counts.
func (n Limit) amount(v int64) string {
	if !n.Bytes() {
		return fmt.Sprintf("%d %s", v, limitKinds[n].name)
	}
	f, unit := float64(v), "bytes"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return strconv.FormatFloat(math.Trunc(f*10)/10, 'f', -1, 64) + " " + unit
}

// LimitSettings holds the operator's limits; see ParseLimits.
type LimitSettings struct {
	Defaults map[Limit]int64            // Optional: those that are absent are the service's own.
	Users    map[string]map[Limit]int64 // exceptions by e-mail address. Optional.
	Teams    map[string]map[Limit]int64 // exceptions by slug. Optional.
}

// Limits hold owners to how much they may have. Packages say how to count what is
// theirs with Count, and ask with RequireTx before they add to it. The zero value holds
// everybody to the service's own defaults.
type Limits struct {
	settings LimitSettings
	counts   map[Limit][]countFunc
}

type countFunc func(ctx context.Context, r db.Reader, owner OwnerID) (int64, error)

// NewLimits returns limits by the operator's settings.
func NewLimits(s LimitSettings) *Limits { return &Limits{settings: s} }

// Count says how much of a limit an owner uses; several counts of one limit add up. It is
// called while the program is put together.
func (l *Limits) Count(name Limit, count func(ctx context.Context, r db.Reader, owner OwnerID) (int64, error)) {
	if l.counts == nil {
		l.counts = map[Limit][]countFunc{}
	}
	l.counts[name] = append(l.counts[name], count)
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
	if !tx.Single() { // an update that changes nothing takes the row's lock
		if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id = $1`, owner); err != nil {
			return fmt.Errorf("lock owner: %w", err)
		}
	}
	return l.Require(ctx, tx, owner, name, more)
}

// Require is RequireTx without the lock, for work that asks long before it adds.
func (l *Limits) Require(ctx context.Context, r db.Reader, owner OwnerID, name Limit, more int64) error {
	u, err := l.UseOf(ctx, r, owner, name)
	if err != nil || u.Left() >= more {
		return err
	}
	return u.Reached()
}

// Reached is the fault of a limit that is used up.
func (u LimitUse) Reached() error {
	kind := limitKinds[u.Name]
	verb, advice := cmp.Or(kind.verb, "have"), cmp.Or(kind.advice, "delete some that are not used")
	has := map[string]string{"have": "has", "store": "stores", "use": "has used"}[verb]
	used := strconv.FormatInt(u.Used, 10)
	if u.Name.Bytes() {
		used = u.Name.amount(u.Used)
	}
	return LimitReached(
		u.Name,
		u.Limit,
		u.Used,
		fmt.Sprintf("this account can %s %s and %s %s; %s, or ask the operator for more", verb, u.Name.amount(u.Limit), has, used, advice),
	)
}

// LimitReached is the fault of a limit that is used up.
func LimitReached(name Limit, limit, current int64, details string) error {
	return &fault.Error{
		Kind: fault.Payment, Message: "Limit reached: " + limitKinds[name].name, Details: details, Code: "limit_reached",
		Limit: &fault.Limit{Name: string(name), Limit: limit, Current: current},
	}
}

// LimitOf returns how many of a limit's things an owner may have.
func (l *Limits) LimitOf(ctx context.Context, r db.Reader, owner OwnerID, name Limit) (int64, error) {
	return l.of(ctx, r, owner, name)
}

// of is the owner's limit: the exception of their user or team, else the default.
func (l *Limits) of(ctx context.Context, r db.Reader, owner OwnerID, name Limit) (int64, error) {
	if len(l.settings.Users)+len(l.settings.Teams) > 0 {
		var kind, known string
		err := r.QueryRow(ctx, `SELECT kind, name FROM owner_standing WHERE owner_id = $1`, owner).Scan(&kind, &known)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return 0, fmt.Errorf("find limits of owner: %w", err)
		}
		exceptions := l.settings.Users
		if kind == "team" {
			exceptions = l.settings.Teams
		}
		if n, ok := exceptions[known][name]; ok {
			return n, nil
		}
	}
	if n, ok := l.settings.Defaults[name]; ok {
		return n, nil
	}
	return limitKinds[name].byDefault, nil
}

// LimitUse is a limit and how much of it is used.
type LimitUse struct {
	Name  Limit
	Limit int64 // or Unlimited
	Used  int64
}

// Left is how much more the owner may have; below zero when they have too much.
func (u LimitUse) Left() int64 {
	if u.Limit == Unlimited {
		return Unlimited
	}
	return u.Limit - u.Used
}

// UseOf returns one limit of an owner.
func (l *Limits) UseOf(ctx context.Context, r db.Reader, owner OwnerID, name Limit) (u LimitUse, err error) {
	u.Name = name
	if u.Limit, err = l.of(ctx, r, owner, name); err != nil {
		return u, err
	}
	for _, count := range l.counts[name] {
		n, err := count(ctx, r, owner)
		if err != nil {
			return u, fmt.Errorf("count %s: %w", name, err)
		}
		u.Used += n
	}
	return u, nil
}

// Use returns every limit of an owner by name.
func (l *Limits) Use(ctx context.Context, r db.Reader, owner OwnerID) (list []LimitUse, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		u, err := l.UseOf(ctx, r, owner, name)
		if err != nil {
			return nil, err
		}
		if u.Used == 0 && (name == LimitTeams || name == LimitMembers) {
			continue // who has no team sees none
		}
		list = append(list, u)
	}
	return list, nil
}

// LimitUse returns every limit of an owner by name.
func (a *Accounts) LimitUse(ctx context.Context, owner OwnerID) ([]LimitUse, error) {
	return a.limits.Use(ctx, a.db, owner)
}

// Amount writes how much is used, for people.
func (u LimitUse) Amount() string { return u.Name.figure(u.Used) }

// Most writes how much that may be.
func (u LimitUse) Most() string {
	if u.Limit == Unlimited {
		return "Unlimited"
	}
	return u.Name.figure(u.Limit)
}

// figure writes so much of what the limit counts, without its name.
func (n Limit) figure(v int64) string {
	if n.Bytes() {
		return n.amount(v)
	}
	text := strconv.FormatInt(v, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Month names the calendar month of a moment, UTC: 202611 is November 2026.
func Month(t db.Time) int64 {
	at := t.Time().UTC()
	return int64(at.Year())*100 + int64(at.Month())
}

// limitNames lists the limits, for messages.
func limitNames() string {
	var names []string
	for n := range limitKinds {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
