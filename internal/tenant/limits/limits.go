// Package limits owns the limits of accounts: their names, their defaults, the operator's exceptions, and the
// check that services make before they add something.
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

// Name names something of which an owner may have so much.
type Name string

// The limits there are.
const (
	Sites        Name = "sites"
	WordPress    Name = "sites.wordpress" // of the sites
	Domains      Name = "domains"
	Deployments  Name = "deployments.pending"
	Webhooks     Name = "webhooks"
	Keys         Name = "keys"
	Env          Name = "env"                // of all sites; one has at most 1,000
	Hooks        Name = "hooks"              // of all sites; one has at most 100
	Databases    Name = "databases"          // of all sites; one has at most 20
	Programs     Name = "sites.running"      // on all nodes that reach each other, commands and background processes included
	Previews     Name = "previews"           // preview addresses of all sites; one has at most 100
	Storage      Name = "storage.bytes"      // files of stored releases, and what programs store
	BuildMinutes Name = "build.minutes"      // in a Window
	Bandwidth    Name = "bandwidth.bytes"    // in a Window
	Throttle     Name = "bandwidth.throttle" // bytes per second of all sites on a node, once the bandwidth is used up; 0: they are paused
	Caches       Name = "caches.bytes"       // of builds; what exceeds it is dropped, the oldest first
	Backups      Name = "backups.bytes"      // that backups added to where they are stored
	Teams        Name = "teams"              // that a person made and owns
	Members      Name = "members"            // of a team, invitations and guests included
	OAuthApps    Name = "oauth.apps"         // that the account registered
	OAuthGrants  Name = "oauth.grants"       // that its people gave to apps, one for each device
)

// Unlimited is the limit of those who have none.
const Unlimited = math.MaxInt64

// kind describes a limit.
type kind struct {
	byDefault int64  // where the operator says nothing
	name      string // what it counts, for sentences
	verb      string // what an account does with it; empty: have
	advice    string // how there comes to be room; empty: by deleting, or with the next window
}

// kinds describes every limit.
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

// Bytes reports whether the limit counts bytes.
func (n Name) Bytes() bool { return strings.HasSuffix(string(n), ".bytes") || n == Throttle }

// The rates to which sites may be slowed down: less is no website, more is no limit.
const (
	LeastThrottle = 8 << 10
	MostThrottle  = 16 << 20
)

// Check returns an error in words where a limit can't be n.
func (n Name) Check(v int64) error {
	if v < 0 {
		return fmt.Errorf("%s must be at least 0", n)
	}
	if n == Throttle && v != 0 && (v < LeastThrottle || v > MostThrottle) {
		return fmt.Errorf("%s must be 0, which pauses sites, or %d to %d bytes per second", n, LeastThrottle, MostThrottle)
	}
	return nil
}

// Title is the limit's name for people.
func (n Name) Title() string {
	name := kinds[n].name
	return strings.ToUpper(name[:1]) + name[1:]
}

// amount writes so much of what the limit counts.
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

// Known reports whether there is a limit of this name.
func Known(n Name) bool { _, ok := kinds[n]; return ok }

// Settings holds the operator's limits; see Parse.
type Settings struct {
	Defaults map[Name]int64            // Optional: those that are absent are the service's own.
	Users    map[string]map[Name]int64 // exceptions by e-mail address. Optional.
	Teams    map[string]map[Name]int64 // exceptions by slug. Optional.
}

// Limits hold owners to how much they may have. Packages say how to count what is
// theirs with Count, and ask with RequireTx before they add to it. The zero value holds
// everybody to the service's own defaults.
type Limits struct {
	settings Settings
	counts   map[Name][]countFunc
	plans    Plans // Optional
}

// Plans say what owners have bought, ahead of the defaults and behind the operator's exceptions.
type Plans interface {
	// PlanLimit returns the limit of the owner's plan, and whether it has one of this name.
	PlanLimit(ctx context.Context, r db.Reader, owner id.Owner, name Name) (n int64, has bool, err error)
	// Upgrade returns the owner's plan, and the cheapest that is offered with more than n; empty: none.
	Upgrade(ctx context.Context, r db.Reader, owner id.Owner, name Name, n int64) (plan, upgrade string, err error)
}

// Connect says who knows plans. It is called while the program is put together.
func (l *Limits) Connect(p Plans) { l.plans = p }

type countFunc func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error)

// New returns limits by the operator's settings.
func New(s Settings) *Limits { return &Limits{settings: s} }

// Count says how much of a limit an owner uses; several counts of one limit add up. It is
// called while the program is put together.
func (l *Limits) Count(name Name, count func(ctx context.Context, r db.Reader, owner id.Owner) (int64, error)) {
	l.CountWithin(name, func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error) {
		n, err := count(ctx, r, owner)
		return n, Window{}, err
	})
}

// CountWithin is Count for what is limited within a window, and says which one it counted in.
func (l *Limits) CountWithin(name Name, count func(ctx context.Context, r db.Reader, owner id.Owner) (int64, Window, error)) {
	if l.counts == nil {
		l.counts = map[Name][]countFunc{}
	}
	l.counts[name] = append(l.counts[name], count)
}

// CountRows is Count with a statement whose $1 is the owner.
func (l *Limits) CountRows(name Name, query string) {
	l.Count(name, func(ctx context.Context, r db.Reader, owner id.Owner) (n int64, err error) {
		return n, r.QueryRow(ctx, query, owner).Scan(&n)
	})
}

// RequireTx returns nil when the owner may have that many more, else a Payment fault.
// Until the transaction ends nobody else adds to what the owner has: the limit holds
// exactly, however many ask at once.
func (l *Limits) RequireTx(ctx context.Context, tx *db.Tx, owner id.Owner, name Name, more int64) error {
	if !tx.Single() { // an update that changes nothing takes the row's lock
		if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id = $1`, owner); err != nil {
			return fmt.Errorf("lock owner: %w", err)
		}
	}
	return l.Require(ctx, tx, owner, name, more)
}

// Require is RequireTx without the lock, for work that asks long before it adds.
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

// offer finds out which plan has more.
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

// Reached is the fault of a limit that is used up.
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
	err := Reached(
		u.Name, u.Limit, u.Used,
		fmt.Sprintf("this account can %s %s and %s %s; %s, or %s", verb, u.Name.amount(u.Limit), has, used, advice, more),
	)
	f := fault.As(err)
	if u.offered {
		if f.Limit.Plan, f.Limit.Upgrade, f.Limit.Team = u.plan, u.upgrade, u.team; u.Limit == 0 {
			f.Details = "the plan doesn't include " + kind.name + "; " + more
		}
	}
	return err
}

// Reached is the fault of a limit that is used up.
func Reached(name Name, limit, current int64, details string) error {
	return &fault.Error{
		Kind: fault.Payment, Message: "Limit reached: " + kinds[name].name, Details: details, Code: "limit_reached",
		Limit: &fault.Limit{Name: string(name), Limit: limit, Current: current},
	}
}

// LimitOf returns how many of a limit's things an owner may have.
func (l *Limits) LimitOf(ctx context.Context, r db.Reader, owner id.Owner, name Name) (int64, error) {
	return l.of(ctx, r, owner, name)
}

// Small says whose limit may be less than something.
type Small struct {
	Anybody bool     // the default is: everybody's who has no plan and no exception
	Plans   bool     // plans may be: the view plan_limits says whose
	Users   []string // those with such an exception, by e-mail address
	Teams   []string // by slug
}

// Below returns whose limit may be less than n.
func (l *Limits) Below(name Name, n int64) (s Small) {
	most, ok := l.settings.Defaults[name]
	s.Anybody, s.Plans = ok && most < n || !ok && kinds[name].byDefault < n, l.plans != nil
	less := func(exceptions map[string]map[Name]int64) (known []string) {
		for who, of := range exceptions {
			if most, ok := of[name]; ok && most < n {
				known = append(known, who)
			}
		}
		slices.Sort(known)
		return known
	}
	s.Users, s.Teams = less(l.settings.Users), less(l.settings.Teams)
	return s
}

// of is the owner's limit: the exception of their user or team, else their plan's, else the default.
func (l *Limits) of(ctx context.Context, r db.Reader, owner id.Owner, name Name) (int64, error) {
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

// Use is a limit and how much of it is used.
type Use struct {
	Name  Name
	Limit int64 // or Unlimited
	Used  int64

	Window   Window // in which it was used; zero: the limit isn't one of a window
	Throttle int64  // of bandwidth, as Use lists it: bytes per second of all sites once it is used up; 0: they are paused

	offered       bool   // plans are sold
	plan, upgrade string // the owner's, and one with more
	team          string // slug of the owner that the other one is for; empty: a person
}

// Left is how much more the owner may have; below zero when they have too much.
func (u Use) Left() int64 {
	if u.Limit == Unlimited {
		return Unlimited
	}
	return u.Limit - u.Used
}

// UseOf returns one limit of an owner.
func (l *Limits) UseOf(ctx context.Context, r db.Reader, owner id.Owner, name Name) (u Use, err error) {
	u.Name = name
	if u.Limit, err = l.of(ctx, r, owner, name); err != nil {
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

// Use returns every limit of an owner by name.
func (l *Limits) Use(ctx context.Context, r db.Reader, owner id.Owner) (list []Use, err error) {
	for _, name := range slices.Sorted(maps.Keys(l.counts)) {
		u, err := l.UseOf(ctx, r, owner, name)
		if err != nil {
			return nil, err
		}
		if u.Used == 0 && (name == Teams || name == Members) {
			continue // who has no team sees none
		}
		if name == Bandwidth && u.Limit != Unlimited {
			if u.Throttle, err = l.of(ctx, r, owner, Throttle); err != nil {
				return nil, err
			}
		}
		list = append(list, u)
	}
	return list, nil
}

// Amount writes how much is used, for people.
func (u Use) Amount() string { return u.Name.figure(u.Used) }

// Most writes how much that may be.
func (u Use) Most() string {
	if u.Limit == Unlimited {
		return "Unlimited"
	}
	return u.Name.figure(u.Limit)
}

// figure writes so much of what the limit counts, without its name.
func (n Name) figure(v int64) string {
	if n.Bytes() {
		return n.amount(v)
	}
	text := strconv.FormatInt(v, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Speed writes a rate in bytes per second, for people.
func Speed(rate int64) string { return Throttle.amount(rate) + "/s" }

// Month names the calendar month of a moment, UTC: 202611 is November 2026.
func Month(t db.Time) int64 {
	at := t.Time().UTC()
	return int64(at.Year())*100 + int64(at.Month())
}

// names lists the limits, for messages.
func names() string {
	var names []string
	for n := range kinds {
		names = append(names, string(n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
