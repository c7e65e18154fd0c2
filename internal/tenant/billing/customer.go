package billing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

// Customer is an owner as operators see it.
type Customer struct {
	Owner     id.Owner
	Name      string // a user's email address or a team's slug
	Plan      string // empty: none
	Title     string
	Status    Status
	Term      plan.Term
	Price     Balance // per period, without tax
	PeriodEnd db.Time
}

const customerQuery = `
	SELECT o.owner_id, o.name, COALESCE(p.name, ''), COALESCE(p.title, ''), COALESCE(s.status, ''), COALESCE(v.term, ''),
		COALESCE(v.currency, ''), COALESCE(v.amount, 0), COALESCE(s.period_end, 0)
	FROM owner_standing o LEFT JOIN billing_subscriptions s ON s.owner_id = o.owner_id AND s.status <> 'expired'
	LEFT JOIN billing_versions v ON v.id = s.version_id LEFT JOIN billing_plans p ON p.id = v.plan_id `

func scanCustomer(s db.Scanner) (c Customer, err error) {
	return c, s.Scan(&c.Owner, &c.Name, &c.Plan, &c.Title, &c.Status, &c.Term, &c.Price.Currency, &c.Price.Amount, &c.PeriodEnd)
}

// Customers returns up to limit owners with their subscriptions, ordered by name and after the given one. search matches
// a part of the name. Both may be empty.
func (b *Billing) Customers(ctx context.Context, r db.Reader, search, after string, limit int) ([]Customer, error) {
	like := "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(strings.ToLower(search)) + "%"
	rows, err := r.Query(ctx, customerQuery+`WHERE o.name LIKE $1 ESCAPE '\' AND o.name > $2 ORDER BY o.name LIMIT $3`, like, after, limit)
	list, err := db.Collect(rows, err, scanCustomer)
	if err != nil {
		return nil, fmt.Errorf("list customers: %w", err)
	}
	return list, nil
}

// Customer returns the owner with an id, an email address or a team's slug, or a NotFound fault.
func (b *Billing) Customer(ctx context.Context, r db.Reader, name string) (Customer, error) {
	c, err := scanCustomer(r.QueryRow(ctx, customerQuery+`WHERE o.owner_id = $1 OR o.id = $1 OR o.name = $2`, name,
		strings.ToLower(strings.TrimSpace(name))))
	if errors.Is(err, sql.ErrNoRows) {
		return c, fault.Missing("customer")
	}
	if err != nil {
		return c, fmt.Errorf("read customer: %w", err)
	}
	return c, nil
}

// Margin is the revenue and cost of a plan version per period, by seller.
type Margin struct {
	Plan, Title   string
	Seller        string // empty: the installation
	Version       int64
	Term          plan.Term
	Currency      money.Currency
	Subscriptions int64 // paying ones, without trials
	Price, Cost   int64 // of one subscription
}

// Total returns revenue minus cost over all subscriptions, per period.
func (m Margin) Total() (int64, error) { return money.MulDiv(m.Price-m.Cost, m.Subscriptions, 1) }

// Margins returns the margin of each plan version that has subscribers.
func (b *Billing) Margins(ctx context.Context, r db.Reader) ([]Margin, error) {
	rows, err := r.Query(ctx, `
		SELECT p.name, p.title, COALESCE(o.seller_id, '') AS seller, v.number, v.term, v.currency, count(*), v.amount, v.cost
		FROM billing_subscriptions s JOIN billing_versions v ON v.id = s.version_id JOIN billing_plans p ON p.id = v.plan_id
		LEFT JOIN owner_sellers o ON o.owner_id = s.owner_id WHERE s.status IN ('active', 'past_due', 'canceled') AND s.period >= 0
		GROUP BY p.name, p.title, seller, v.number, v.term, v.currency, v.amount, v.cost ORDER BY seller, p.name, v.number, v.term, v.currency`)
	list, err := db.Collect(rows, err, func(s db.Scanner) (m Margin, err error) {
		return m, s.Scan(&m.Plan, &m.Title, &m.Seller, &m.Version, &m.Term, &m.Currency, &m.Subscriptions, &m.Price, &m.Cost)
	})
	if err != nil {
		return nil, fmt.Errorf("read margins: %w", err)
	}
	return list, nil
}
