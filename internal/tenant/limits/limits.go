// Package limits owns the limits of accounts: their names, defaults, the operator's exceptions, and the check that
// services make before adding something.
package limits

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
	"slipway/internal/platform/id"
)

// Name names a limit.
type Name string

const (
	Sites        Name = "sites"
	WordPress    Name = "sites.wordpress" // counted among Sites too
	Domains      Name = "domains"
	Deployments  Name = "deployments.pending"
	Webhooks     Name = "webhooks"
	Keys         Name = "keys"
	Env          Name = "env"                // over all sites; one site has at most 1,000
	Hooks        Name = "hooks"              // over all sites; one site has at most 100
	Databases    Name = "databases"          // over all sites; one site has at most 20
	Programs     Name = "sites.running"      // on all connected nodes, including commands and background processes
	Previews     Name = "previews"           // preview addresses over all sites; one site has at most 100
	Storage      Name = "storage.bytes"      // stored releases and programs' files
	BuildMinutes Name = "build.minutes"      // per Window
	Bandwidth    Name = "bandwidth.bytes"    // per Window
	Throttle     Name = "bandwidth.throttle" // bytes per second for all sites on a node once the bandwidth is used up; 0: pause them
	Caches       Name = "caches.bytes"       // build caches; the oldest are evicted
	Backups      Name = "backups.bytes"      // added by backups to their storage
	Teams        Name = "teams"              // created and owned by a person
	Members      Name = "members"            // of a team, including invitations and guests
	OAuthApps    Name = "oauth.apps"         // registered by the account
	OAuthGrants  Name = "oauth.grants"       // given to apps by the account's people, one per device
)

// Unlimited means no limit.
const Unlimited = math.MaxInt64

// kind describes a limit.
type kind struct {
	byDefault int64  // the limit unless the operator sets one
	name      string // what it counts, used in sentences
	verb      string // what an account does with it; empty: have
	advice    string // how to make room; empty: delete some, or wait for the next window
}

var kinds = map[Name]kind{
	Sites:        {byDefault: 5000, name: "sites"},
	WordPress:    {byDefault: 5000, name: "WordPress sites"},
	Domains:      {byDefault: 10_000, name: "domains"},
	Deployments:  {byDefault: 5000, name: "pending deployments"},
	Webhooks:     {byDefault: 100, name: "webhooks"},
	Keys:         {byDefault: 200, name: "API keys"},
	Env:          {byDefault: 100_000, name: "environment variables"},
	Hooks:        {byDefault: 10_000, name: "deploy hooks"},
	Databases:    {byDefault: 100, name: "databases"},
	Programs:     {byDefault: 100, name: "running programs", verb: "run", advice: "stop sites or let them sleep"},
	Previews:     {byDefault: 5000, name: "preview addresses", advice: "delete branches or sites that are not used"},
	Storage:      {byDefault: 1 << 40, name: "stored files", verb: "store", advice: "delete sites that are not used"},
	BuildMinutes: {byDefault: 50_000, name: "build minutes", verb: "use"},
	Bandwidth:    {byDefault: 10 << 40, name: "bandwidth", verb: "use"},
	Throttle:     {name: "speed at the bandwidth limit"},
	Caches:       {byDefault: 100 << 30, name: "build caches", verb: "store"},
	Backups:      {byDefault: 100 << 30, name: "backups", verb: "store"},
	Teams:        {byDefault: 20, name: "teams"},
	Members:      {byDefault: 1000, name: "members", advice: "remove members and invitations that are not needed"},
	OAuthApps:    {byDefault: 50, name: "OAuth apps"},
	OAuthGrants:  {byDefault: 500, name: "authorized apps", advice: "revoke apps that are not used"},
}

// Bytes reports whether the limit is in bytes.
func (n Name) Bytes() bool { return strings.HasSuffix(string(n), ".bytes") || n == Throttle }

// Bounds of the rate for slowed sites: a lower one serves no usable website, a higher one is no limit.
const (
	LeastThrottle = 8 << 10
	MostThrottle  = 16 << 20
)

// Check returns an error in words if the limit can't be v.
func (n Name) Check(v int64) error {
	if v < 0 {
		return fmt.Errorf("%s must be at least 0", n)
	}
	if n == Throttle && v != 0 && (v < LeastThrottle || v > MostThrottle) {
		return fmt.Errorf("%s must be 0, which pauses sites, or %d to %d bytes per second", n, LeastThrottle, MostThrottle)
	}
	return nil
}

// Title returns the limit's display name.
func (n Name) Title() string {
	name := kinds[n].name
	return strings.ToUpper(name[:1]) + name[1:]
}

// amount formats v with the limit's unit or name.
func (n Name) amount(v int64) string {
	if !n.Bytes() {
		return fmt.Sprintf("%d %s", v, kinds[n].name)
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

// Known reports whether the limit exists.
func Known(n Name) bool { _, ok := kinds[n]; return ok }

// Settings holds the operator's limits. See [Parse].
type Settings struct {
	Defaults map[Name]int64            // Optional: missing ones keep the built-in default.
	Users    map[string]map[Name]int64 // exceptions by email address. Optional.
	Teams    map[string]map[Name]int64 // exceptions by team slug. Optional.
}

// Limits enforces the limits of owners. Packages register their counts with Count and call RequireTx before adding
// something. The zero value enforces the built-in defaults.
type Limits struct {
	settings Settings
	counts   map[Name][]countFunc
	plans    Plans // Optional
}

// Plans provides the limits that owners bought. They override the defaults; the operator's exceptions override them.
type Plans interface {
	// PlanLimit returns the limit from the owner's plan, and whether the plan has it.
	PlanLimit(ctx context.Context, r db.Reader, owner id.Owner, name Name) (n int64, has bool, err error)
	// Upgrade returns the owner's plan and the cheapest offered plan with more than n, or "".
	Upgrade(ctx context.Context, r db.Reader, owner id.Owner, name Name, n int64) (plan, upgrade string, err error)
}

// Connect sets the source of plans. It must be called during startup.
func (l *Limits) Connect(p Plans) { l.plans = p }

type countFunc func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error)

// New returns Limits with the operator's settings.
func New(s Settings) *Limits { return &Limits{settings: s} }

// Count registers a function that counts an owner's use of a limit. Several counts of one limit are added. It must be
// called during startup.
func (l *Limits) Count(name Name, count func(ctx context.Context, r db.Reader, owner id.Owner) (int64, error)) {
	l.CountWithin(name, func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error) {
		n, err := count(ctx, r, owner)
		return n, Window{}, err
	})
}

// CountWithin is [Limits.Count] for limits per window. count also returns the window.
func (l *Limits) CountWithin(name Name, count func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error)) {
	if l.counts == nil {
		l.counts = map[Name][]countFunc{}
	}
	l.counts[name] = append(l.counts[name], count)
}

// CountRows is [Limits.Count] with a query whose $1 is the owner.
func (l *Limits) CountRows(name Name, query string) {
	l.Count(name, func(ctx context.Context, r db.Reader, owner id.Owner) (n int64, err error) {
		return n, r.QueryRow(ctx, query, owner).Scan(&n)
	})
}

// RequireTx returns nil if the owner may add more, otherwise a Payment fault. It locks the owner's count until the
// transaction ends, so that concurrent calls can't exceed the limit.
func (l *Limits) RequireTx(ctx context.Context, tx *db.Tx, owner id.Owner, name Name, more int64) error {
	if !tx.Single() { // a no-op update takes the row's lock
		if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id = $1`, owner); err != nil {
			return fmt.Errorf("lock owner: %w", err)
		}
	}
	return l.Require(ctx, tx, owner, name, more)
}

// Require is [Limits.RequireTx] without the lock, for checks long before the addition.
func (l *Limits) Require(ctx context.Context, r db.Reader, owner id.Owner, name Name, more int64) error {
	u, err := l.UseOf(ctx, r, owner, name)
	if err != nil || u.Left() >= more {
		return err
	}
	if err := l.offer(ctx, r, owner, &u); err != nil {
		return err
	}
	return u.Reached()
}

// offer looks up the plan with a higher limit.
func (l *Limits) offer(ctx context.Context, r db.Reader, owner id.Owner, u *Use) (err error) {
	if l.plans == nil || u.offered {
		return nil
	}
	u.offered = true
	if u.plan, u.upgrade, err = l.plans.Upgrade(ctx, r, owner, u.Name, u.Limit); err != nil || u.upgrade == "" {
		return err
	}
	err = r.QueryRow(ctx, `SELECT name FROM owner_standing WHERE owner_id = $1 AND kind = 'team'`, owner).Scan(&u.team)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find team of owner: %w", err)
	}
	return nil
}

// Reached returns the fault of an exhausted limit.
func (u Use) Reached() error {
	kind := kinds[u.Name]
	verb, advice := cmp.Or(kind.verb, "have"), cmp.Or(kind.advice, "delete some that are not used")
	has := map[string]string{"have": "has", "store": "stores", "use": "has used"}[verb]
	if u.Window.To > 0 {
		advice = "it starts at zero " + u.Window.Ends()
	}
	more := "ask the operator for more"
	if u.upgrade != "" {
		more = "choose a larger plan"
	}
	used := strconv.FormatInt(u.Used, 10)
	if u.Name.Bytes() {
		used = u.Name.amount(u.Used)
	}
	err := Reached(u.Name, u.Limit, u.Used,
		fmt.Sprintf("this account can %s %s and %s %s; %s, or %s", verb, u.Name.amount(u.Limit), has, used, advice, more))
	f := fault.As(err)
	if u.offered {
		f.Limit.Plan, f.Limit.Upgrade, f.Limit.Team = u.plan, u.upgrade, u.team
		if u.Limit == 0 {
			f.Details = "the plan doesn't include " + kind.name + "; " + more
		}
	}
	return err
}

// Reached returns the fault of an exhausted limit with these values.
func Reached(name Name, limit, current int64, details string) error {
	return &fault.Error{
		Kind: fault.Payment, Message: "Limit reached: " + kinds[name].name, Details: details, Code: "limit_reached",
		Limit: &fault.Limit{Name: string(name), Limit: limit, Current: current},
	}
}

// LimitOf returns an owner's limit.
func (l *Limits) LimitOf(ctx context.Context, r db.Reader, owner id.Owner, name Name) (int64, error) {
	return l.limitOf(ctx, r, owner, name)
}

// Small says which owners may have a limit below some value.
type Small struct {
	Anybody bool     // the default is lower, so everyone without a plan or exception
	Plans   bool     // a plan may be lower; see the view plan_limits
	Users   []string // email addresses with a lower exception
	Teams   []string // team slugs with a lower exception
}

// Below returns whose limit may be below n.
func (l *Limits) Below(name Name, n int64) (s Small) {
	limit, ok := l.settings.Defaults[name]
	s.Anybody, s.Plans = ok && limit < n || !ok && kinds[name].byDefault < n, l.plans != nil
	less := func(exceptions map[string]map[Name]int64) (known []string) {
		for who, of := range exceptions {
			if limit, ok := of[name]; ok && limit < n {
				known = append(known, who)
			}
		}
		slices.Sort(known)
		return known
	}
	s.Users, s.Teams = less(l.settings.Users), less(l.settings.Teams)
	return s
}

// limitOf returns the owner's limit: the exception for the user or team, otherwise the plan's, otherwise the default.
func (l *Limits) limitOf(ctx context.Context, r db.Reader, owner id.Owner, name Name) (int64, error) {
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
	if l.plans != nil {
		if n, has, err := l.plans.PlanLimit(ctx, r, owner, name); err != nil || has {
			return n, err
		}
	}
	if n, ok := l.settings.Defaults[name]; ok {
		return n, nil
	}
	return kinds[name].byDefault, nil
}

// Use is a limit and its current use.
type Use struct {
	Name  Name
	Limit int64 // may be Unlimited
	Used  int64

	Window   Window // zero for limits without a window
	Throttle int64  // set by Use for bandwidth: bytes per second of all sites once it is used up; 0: they are paused

	offered       bool   // whether plans are sold
	plan, upgrade string // the owner's plan, and one with a higher limit
	team          string // the team's slug; empty for a person
}

// Left returns the remaining amount, which is negative if the limit is exceeded.
func (u Use) Left() int64 {
	if u.Limit == Unlimited {
		return Unlimited
	}
	return u.Limit - u.Used
}

// UseOf returns an owner's use of one limit.
func (l *Limits) UseOf(ctx context.Context, r db.Reader, owner id.Owner, name Name) (u Use, err error) {
	u.Name = name
	if u.Limit, err = l.limitOf(ctx, r, owner, name); err != nil {
		return u, err
	}
	for _, count := range l.counts[name] {
		n, in, err := count(ctx, r, owner)
		if err != nil {
			return u, fmt.Errorf("count %s: %w", name, err)
		}
		u.Used, u.Window = u.Used+n, in
	}
	if u.Left() <= 0 {
		err = l.offer(ctx, r, owner, &u)
	}
	return u, err
}

// Use returns an owner's use of every limit, ordered by name.
func (l *Limits) Use(ctx context.Context, r db.Reader, owner id.Owner) (list []Use, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		u, err := l.UseOf(ctx, r, owner, name)
		if err != nil {
			return nil, err
		}
		if u.Used == 0 && (name == Teams || name == Members) {
			continue // omitted for people without teams
		}
		if name == Bandwidth && u.Limit != Unlimited {
			if u.Throttle, err = l.limitOf(ctx, r, owner, Throttle); err != nil {
				return nil, err
			}
		}
		list = append(list, u)
	}
	return list, nil
}

// Amount formats the use for people.
func (u Use) Amount() string { return u.Name.format(u.Used) }

// Most formats the limit for people.
func (u Use) Most() string {
	if u.Limit == Unlimited {
		return "Unlimited"
	}
	return u.Name.format(u.Limit)
}

// format formats v with its unit but without the limit's name.
func (n Name) format(v int64) string {
	if n.Bytes() {
		return n.amount(v)
	}
	text := strconv.FormatInt(v, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Speed formats a rate in bytes per second for people.
func Speed(rate int64) string { return Throttle.amount(rate) + "/s" }

// Month returns the calendar month of t in UTC: 202611 is November 2026.
func Month(t db.Time) int64 {
	at := t.Time().UTC()
	return int64(at.Year())*100 + int64(at.Month())
}

// names lists all limits for messages.
func names() string {
	var names []string
	for n := range kinds {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
