package plans

import (
	"context"
	"strconv"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/web/dashboard/shell"
)

// mostCustomers caps the customers per page.
const mostCustomers = 50

type customerRow struct {
	ID, Name, Plan, Status, Price string
}

var statuses = map[billing.Status]string{
	billing.Trialing: "Trial", billing.Active: "Active", billing.PastDue: "Past due", billing.Paused: "Paused", billing.Canceled: "Canceled",
}

func customerOf(c billing.Customer) customerRow {
	r := customerRow{ID: string(c.Owner), Name: c.Name, Plan: c.Title, Status: statuses[c.Status]}
	if c.Plan != "" {
		r.Price = price(c.Price.Currency, c.Price.Amount, c.Term)
	}
	return r
}

func (d *Pages) customersPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	search, after := q.URL.Query().Get("search"), q.URL.Query().Get("after")
	list, err := d.billing.Customers(ctx, d.DB, search, after, mostCustomers+1)
	next := ""
	if len(list) > mostCustomers {
		list = list[:mostCustomers]
		next = list[mostCustomers-1].Name
	}
	var rows []customerRow
	for _, c := range list {
		rows = append(rows, customerOf(c))
	}
	return shell.Page("operator_customers", "Customers", struct {
		Customers    []customerRow
		Search, Next string
	}{rows, search, next}), err
}

type customerData struct {
	customerRow
	Words    string // describes the subscription
	Offers   []offer
	Credit   []string
	Grants   []grantRow
	Invoices []invoiceRow
	Profile  party.Profile
	Deletion string // deletion date of the account's sites; empty: never
	Sellers  []seller.Seller
	Seller   string // the account's seller; empty: the installation
}

type grantRow struct{ ID, Name, Value, Until, Reason string }

func (d *Pages) customer(ctx context.Context, r db.Reader, q *shell.Request) (billing.Customer, error) {
	return d.billing.Customer(ctx, r, q.PathValue("customer"))
}

func (d *Pages) customerPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.customer(ctx, d.DB, q)
	if err != nil {
		return shell.Answer{}, err
	}
	data := customerData{customerRow: customerOf(c)}
	if data.Deletion, err = d.deletion(ctx, c.Owner); err != nil {
		return shell.Answer{}, err
	}
	if c.Plan != "" {
		data.Words = data.Price + " · " + data.Status + " · period ends on " + date(c.PeriodEnd)
	}
	offers, err := d.billing.OffersTo(ctx, d.DB, c.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, v := range offers {
		data.Offers = append(data.Offers,
			offer{Plan: v.Plan, Title: v.Title, Interval: string(v.Term), Currency: string(v.Currency), Price: price(v.Currency, v.Amount, v.Term)})
	}
	credits, err := d.billing.Credits(ctx, d.DB, c.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, x := range credits {
		data.Credit = append(data.Credit, x.Currency.Format(x.Amount))
	}
	grants, err := d.billing.Grants(ctx, d.DB, c.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, g := range grants {
		r := grantRow{ID: g.ID, Name: g.Name.Title(), Value: strconv.FormatInt(g.Value, 10), Reason: g.Reason, Until: "No end"}
		if g.Until > 0 {
			r.Until = "Until " + date(g.Until)
		}
		data.Grants = append(data.Grants, r)
	}
	invoices, err := d.billing.Invoices(ctx, d.DB, c.Owner, "", 20)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, i := range invoices {
		data.Invoices = append(data.Invoices, rowOf(i))
	}
	if data.Sellers, err = seller.List(ctx, d.DB); err != nil {
		return shell.Answer{}, err
	}
	if data.Seller, err = party.SellerOf(ctx, d.DB, c.Owner); err != nil {
		return shell.Answer{}, err
	}
	data.Profile, err = d.billing.Profile(ctx, d.DB, c.Owner)
	return shell.Page("operator_customer", c.Name, data), err
}

// customersPDF serves the PDF of a customer's invoice.
func (d *Pages) customersPDF(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	c, err := d.customer(ctx, d.DB, q)
	if err != nil {
		return shell.Answer{}, err
	}
	i, err := d.billing.Invoice(ctx, d.DB, c.Owner, shell.PathID[billing.InvoiceID](q, "invoice"))
	if err != nil {
		return shell.Answer{}, err
	}
	return d.pdf(ctx, i)
}

// actFor performs an action for a customer and writes the audit log.
func (d *Pages) actFor(
	ctx context.Context, q *shell.Request, said string, fn func(tx *db.Tx, c billing.Customer) (audit.Event, error),
) (shell.Answer, error) {
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		c, err := d.customer(ctx, tx, q)
		if err != nil {
			return audit.Event{}, err
		}
		return fn(tx, c)
	})
	return shell.GoTo("/operator/customers/"+q.PathValue("customer"), said), err
}

func (d *Pages) subscribeFor(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Plan changed", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		do := billing.Action{Kind: billing.Subscribe, Invoiced: true, Choice: plan.Choice{
			Plan: q.Value("plan"), Term: plan.Term(q.Value("interval")), Currency: money.Currency(q.Value("currency")),
		}}
		name := "subscription.created"
		if c.Plan != "" {
			do.Kind, do.Invoiced, name = billing.Change, false, "subscription.changed"
		}
		s, _, err := d.billing.DoTx(ctx, tx, c.Owner, do, "")
		return audit.Event{Action: name, Subject: string(s.ID), Detail: c.Name + ": " + do.Choice.Plan}, err
	})
}

func (d *Pages) cancelFor(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Subscription canceled", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		s, err := d.billing.EndTx(ctx, tx, c.Owner, false)
		return audit.Event{Action: "subscription.canceled", Subject: string(s.ID), Detail: c.Name}, err
	})
}

func (d *Pages) giveCredit(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Credit added", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		cur, err := money.ParseCurrency(q.Value("currency"))
		if err != nil {
			return audit.Event{}, shell.At("currency", &fault.Error{Kind: fault.Invalid, Message: "Invalid currency", Details: err.Error()})
		}
		n, err := cur.ParseDecimal(q.Value("amount"))
		if err != nil {
			return audit.Event{}, shell.At("amount", &fault.Error{Kind: fault.Invalid, Message: "Invalid amount", Details: err.Error()})
		}
		err = d.billing.GiveCreditTx(ctx, tx, c.Owner, billing.Balance{Currency: cur, Amount: n}, q.Value("reason"))
		return audit.Event{Action: "billing.credited", Detail: c.Name + ": " + cur.Format(n) + ", " + q.Value("reason")}, err
	})
}

func (d *Pages) grant(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Limit granted", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		n, err := strconv.ParseInt(q.Value("value"), 10, 64)
		if err != nil {
			return audit.Event{}, shell.At("value",
				&fault.Error{Kind: fault.Invalid, Message: "Invalid value", Details: "value must be a whole number"})
		}
		g, err := d.billing.GrantTx(ctx, tx, c.Owner, plan.Grant{Name: limits.Name(q.Value("name")), Value: n, Reason: q.Value("why")})
		return audit.Event{Action: "billing.granted", Subject: g.ID, Detail: c.Name + ": " + string(g.Name) + " " + q.Value("value")}, err
	})
}

func (d *Pages) revoke(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.actFor(ctx, q, "Grant deleted", func(tx *db.Tx, c billing.Customer) (audit.Event, error) {
		id := q.PathValue("grant")
		return audit.Event{Action: "billing.grant_deleted", Subject: id, Detail: c.Name}, d.billing.RevokeTx(ctx, tx, c.Owner, id)
	})
}

type marginRow struct{ Plan, Seller, Version, Subscriptions, Price, Cost, Margin string }

func (d *Pages) marginsPage(ctx context.Context, _ *shell.Request) (shell.Answer, error) {
	list, err := d.billing.Margins(ctx, d.DB)
	if err != nil {
		return shell.Answer{}, err
	}
	var rows []marginRow
	for _, m := range list {
		total, err := m.Total()
		if err != nil {
			return shell.Answer{}, err
		}
		rows = append(rows, marginRow{
			m.Title, m.Seller, strconv.FormatInt(m.Version, 10), strconv.FormatInt(m.Subscriptions, 10), price(m.Currency, m.Price, m.Term),
			m.Currency.Format(m.Cost), m.Currency.Format(total),
		})
	}
	return shell.Page("operator_margins", "Margins", struct{ Plans []marginRow }{rows}), nil
}
