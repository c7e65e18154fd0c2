// Package plan owns what is sold: plan versions, coupons, and grants that override a plan's limits.
//
// Versions and coupon values never change, since invoices are recomputed from them. Package billing owns subscriptions.
package plan

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// VersionID names a version of a plan: "plv_" and 26 characters.
type VersionID string

// Plans is the service. It is safe for concurrent use.
type Plans struct{ clock db.Clock }

func New(c db.Clock) *Plans { return &Plans{c} }

// Terms are the conditions of a plan version. A new price is a new version; existing subscribers keep theirs.
type Terms struct {
	Plan      string // identifier, such as pro
	Title     string // display name
	Currency  money.Currency
	Term      Term
	Amount    int64 // per period, without tax
	TrialDays int64
	Public    bool  // whether owners can choose it
	Cost      int64 // seller's cost per period. Optional.
	Limits    map[limits.Name]int64
	Rates     map[usage.Meter]money.Rate
}

type Version struct {
	ID     VersionID
	Number int64
	Terms
	CreatedAt db.Time
}

var planName = lazyregexp.New(`^[a-z][a-z0-9-]{0,39}$`)

const (
	maxTrialDays = 90
	maxVersions  = 1000 // per seller, over all plans
)

func (t Terms) check() error {
	switch {
	case !planName.MatchString(t.Plan):
		return fault.InvalidField("plan", "a plan's name begins with a letter and has up to 40 lowercase letters, digits and hyphens", t.Plan)
	case strings.TrimSpace(t.Title) == "" || len(t.Title) > 80 || strings.ContainsAny(t.Title, "\r\n\t"):
		return fault.InvalidField("title", "title must have 1 to 80 characters on one line", t.Title)
	case t.Term != Month && t.Term != Year:
		return fault.InvalidField("interval", "interval must be month or year", string(t.Term))
	case t.Amount < 0 || t.Amount > money.Most:
		return fault.InvalidField("amount", fmt.Sprintf("amount must be 0 to %d, in the currency's smallest unit", int64(money.Most)), t.Amount)
	case t.Cost < 0 || t.Cost > money.Most:
		return fault.InvalidField("cost", fmt.Sprintf("cost must be 0 to %d, in the currency's smallest unit", int64(money.Most)), t.Cost)
	case t.TrialDays < 0 || t.TrialDays > maxTrialDays:
		return fault.InvalidField("trialDays", fmt.Sprintf("trialDays must be 0 to %d", maxTrialDays), t.TrialDays)
	}
	if _, err := money.ParseCurrency(string(t.Currency)); err != nil {
		return fault.InvalidField("currency", err.Error(), string(t.Currency))
	}
	for name, n := range t.Limits {
		if !limits.Known(name) {
			return fault.InvalidField("limits", fmt.Sprintf("%q is not a limit", name), string(name))
		}
		if err := name.Check(n); err != nil {
			return fault.InvalidField("limits", err.Error(), n)
		}
	}
	for m, r := range t.Rates {
		if !slices.Contains(usage.Meters, m) {
			return fault.InvalidField("rates", fmt.Sprintf("%q is not a meter", m), string(m))
		}
		if err := r.Check(); err != nil {
			return fault.InvalidField("rates", string(m)+": "+err.Error(), nil)
		}
	}
	return nil
}

// PublishTx adds a version and creates the plan if it doesn't exist. New subscriptions to this plan, term and currency
// use the latest version; a non-public one ends the offer.
func (p *Plans) PublishTx(ctx context.Context, tx *db.Tx, seller string, t Terms) (v Version, err error) {
	if err := t.check(); err != nil {
		return v, err
	}
	now := p.clock.Now()
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_plans (id, seller_id, name, title, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (seller_id, name) DO UPDATE SET title = excluded.title`,
		db.NewID("plan"), seller, t.Plan, t.Title, now); err != nil {
		return v, fmt.Errorf("write plan: %w", err)
	}
	var plan string
	var n int64
	if err := tx.QueryRow(ctx, `
		SELECT p.id, (SELECT count(*) FROM billing_versions v JOIN billing_plans q ON q.id = v.plan_id WHERE q.seller_id = $1),
			(SELECT COALESCE(MAX(number), 0) FROM billing_versions v WHERE v.plan_id = p.id)
		FROM billing_plans p WHERE p.seller_id = $1 AND p.name = $2`, seller, t.Plan).Scan(&plan, &n, &v.Number); err != nil {
		return v, fmt.Errorf("read plan: %w", err)
	}
	if n >= maxVersions {
		return v, fault.New(fault.Conflict, "too_many_versions", "Too many plan versions",
			fmt.Sprintf("the limit over all plans is %d", maxVersions))
	}
	v = Version{ID: db.ID[VersionID]("plv"), Number: v.Number + 1, Terms: t, CreatedAt: now}
	rates, err := json.Marshal(t.Rates)
	if err != nil {
		return v, err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_versions (id, plan_id, number, currency, term, amount, trial_days, public, cost, rates, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		v.ID, plan, v.Number, t.Currency, t.Term, t.Amount, t.TrialDays, t.Public, t.Cost, string(rates), now); err != nil {
		return v, fmt.Errorf("write plan version: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Limits)) {
		if _, err := tx.Exec(ctx, `INSERT INTO billing_entitlements (version_id, name, value) VALUES ($1, $2, $3)`, v.ID, name,
			t.Limits[name]); err != nil {
			return v, fmt.Errorf("write limit of plan: %w", err)
		}
	}
	return v, nil
}

const versionColumns = `v.id, v.number, p.name, p.title, v.currency, v.term, v.amount, v.trial_days, v.public, v.cost, v.rates, v.created_at`

func (p *Plans) versions(ctx context.Context, r db.Reader, where string, args ...any) ([]Version, error) {
	rows, err := r.Query(ctx, `SELECT `+versionColumns+` FROM billing_versions v JOIN billing_plans p ON p.id = v.plan_id WHERE `+where+` ORDER BY p.name, v.number`, args...)
	list, err := db.Collect(rows, err, func(s db.Scanner) (v Version, err error) {
		var rates string
		if err := s.Scan(&v.ID, &v.Number, &v.Plan, &v.Title, &v.Currency, &v.Term, &v.Amount, &v.TrialDays, &v.Public, &v.Cost, &rates,
			&v.CreatedAt); err != nil {
			return v, err
		}
		v.Limits = map[limits.Name]int64{}
		return v, json.Unmarshal([]byte(rates), &v.Rates)
	})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	at := map[VersionID]int{}
	var in db.Args
	ids := make([]VersionID, len(list))
	for i, v := range list {
		at[v.ID], ids[i] = i, v.ID
	}
	rows, err = r.Query(ctx, `SELECT version_id, name, value FROM billing_entitlements WHERE version_id IN (`+db.AddList(&in, ids)+`)`, in...)
	_, err = db.Collect(rows, err, func(s db.Scanner) (_ int, err error) {
		var v VersionID
		var name limits.Name
		var n int64
		if err := s.Scan(&v, &name, &n); err != nil {
			return 0, err
		}
		list[at[v]].Limits[name] = n
		return 0, nil
	})
	return list, err
}

// Version returns a version by ID.
func (p *Plans) Version(ctx context.Context, r db.Reader, v VersionID) (Version, error) {
	list, err := p.versions(ctx, r, `v.id = $1`, v)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Version{}, fmt.Errorf("read plan version %s: %w", v, err)
	}
	return list[0], nil
}

// Versions returns every version of a seller's plans.
func (p *Plans) Versions(ctx context.Context, r db.Reader, seller string) ([]Version, error) {
	list, err := p.versions(ctx, r, `p.seller_id = $1`, seller)
	if err != nil {
		return nil, fmt.Errorf("read plans: %w", err)
	}
	return list, nil
}

// Offers returns what owners can choose: the latest version of each plan, term and currency, if it is public.
func (p *Plans) Offers(ctx context.Context, r db.Reader, seller string) ([]Version, error) {
	all, err := p.Versions(ctx, r, seller)
	if err == nil && len(all) == 0 && seller != "" { // a reseller without plans sells the installation's
		all, err = p.Versions(ctx, r, "")
	}
	if err != nil {
		return nil, err
	}
	type offer struct {
		plan     string
		term     Term
		currency money.Currency
	}
	latest := map[offer]int64{}
	for _, v := range all {
		latest[offer{v.Plan, v.Term, v.Currency}] = v.Number
	}
	return slices.DeleteFunc(all, func(v Version) bool {
		return !v.Public || latest[offer{v.Plan, v.Term, v.Currency}] != v.Number
	}), nil
}

// Choice names an offer. Term and Currency may be empty if the plan has only one; otherwise monthly terms take
// precedence.
type Choice struct {
	Plan     string
	Term     Term
	Currency money.Currency
}

// OffersTo returns the offers of the owner's seller.
func (p *Plans) OffersTo(ctx context.Context, r db.Reader, owner id.Owner) ([]Version, error) {
	seller, err := party.SellerOf(ctx, r, owner)
	if err != nil {
		return nil, err
	}
	return p.Offers(ctx, r, seller)
}

// Offer finds the offer that an owner chose.
func (p *Plans) Offer(ctx context.Context, r db.Reader, owner id.Owner, c Choice, prefer money.Currency) (Version, error) {
	all, err := p.OffersTo(ctx, r, owner)
	if err != nil {
		return Version{}, err
	}
	var found []Version
	for _, v := range all {
		if v.Plan == c.Plan && (c.Term == "" || c.Term == v.Term) && (c.Currency == "" || c.Currency == v.Currency) {
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return Version{}, fault.New(fault.Invalid, "invalid_plan", "Invalid plan",
			"no plan of this name is offered with this interval and currency; GET /api/v1/plans lists those that are").Got(c.Plan)
	}
	slices.SortStableFunc(found, func(x, y Version) int {
		rank := func(v Version) (n int) {
			if v.Term != Month {
				n++
			}
			if prefer != "" && v.Currency != prefer {
				n += 2
			}
			return n
		}
		return rank(x) - rank(y)
	})
	return found[0], nil
}
