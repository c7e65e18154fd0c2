package billing

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

// basis is the stored input of an invoice. Together with the plan versions and the sealed usage it always yields the
// same bytes.
type basis struct {
	Charges []charge
	Usage   *usageSpan     // Optional
	Coupon  *plan.Discount `json:",omitempty"` // Optional: reduces the period's base price
	Credit  *correction    // Optional: set on credit notes
	Frozen  *frozenBasis   // set once the invoice is final
}

// charge is a part of a version's price.
type charge struct {
	Kind        string
	Version     plan.VersionID
	From, To    db.Time
	Part, Whole int64 // hours
}

// frozenBasis holds the other facts of an invoice as they were when it got its number.
type frozenBasis struct {
	Number      string
	FinalizedAt db.Time
	DueAt       db.Time
	Seller      party.Settings
	Buyer       party.Profile
	Credit      int64 // credit used; negative if earlier invoices were carried over
	Carried     int64 `json:",omitempty"` // carried over to the next invoice, as too small to charge
	// Older versions omitted Tax; nil means that it is derived from the seller and the buyer.
	Tax *party.Tax `json:",omitempty"`
}

func (f frozenBasis) tax() party.Tax {
	if f.Tax != nil {
		return *f.Tax
	}
	return party.TaxOf(f.Seller, f.Buyer)
}

func hours(from, to db.Time) int64 { return int64(to.Sub(from) / hour) }

func baseCharge(v plan.VersionID, from, to db.Time) charge {
	n := hours(from, to)
	return charge{Kind: document.Base, Version: v, From: from, To: to, Part: n, Whole: n}
}

// computed holds an invoice's lines and sums.
type computed struct {
	Lines           []document.Line
	Currency        money.Currency
	Tax             party.Tax
	Net, Due, Total int64 // Due is the tax
}

func (b *Billing) compute(ctx context.Context, r db.Reader, owner id.Owner, x basis, t party.Tax) (c computed, err error) {
	c.Tax = t
	versions := map[plan.VersionID]plan.Version{}
	version := func(id plan.VersionID) (plan.Version, error) {
		if v, ok := versions[id]; ok {
			return v, nil
		}
		v, err := b.Version(ctx, r, id)
		versions[id] = v
		if c.Currency == "" {
			c.Currency = v.Currency
		}
		return v, err
	}
	for _, ch := range x.Charges {
		v, err := version(ch.Version)
		if err != nil {
			return c, err
		}
		l := document.Line{Kind: ch.Kind, Plan: v.Plan, Version: v.ID, From: ch.From.String(), To: ch.To.String()}
		if l.Amount, err = money.Share(v.Amount, ch.Part, ch.Whole); err != nil {
			return c, err
		}
		switch ch.Kind {
		case document.Base:
			l.Text = v.Title + ", " + document.Span(ch.From, ch.To)
		case document.Unused:
			l.Amount = -l.Amount
			l.Text = "Unused time on " + v.Title + ", " + document.Span(ch.From, ch.To)
		case document.Rest:
			l.Text = "Remaining time on " + v.Title + ", " + document.Span(ch.From, ch.To)
		}
		c.Lines = append(c.Lines, l)
	}
	if x.Coupon != nil {
		var price int64
		for _, l := range c.Lines {
			price += l.Amount
		}
		off, err := x.Coupon.Off(max(0, price))
		if err != nil {
			return c, err
		}
		c.Lines = append(c.Lines, document.Line{Kind: document.Discount, Text: "Coupon " + x.Coupon.Code, Amount: -off})
	}
	if u := x.Usage; u != nil {
		lines, err := b.usageLines(ctx, r, owner, *u, version)
		if err != nil {
			return c, err
		}
		c.Lines = append(c.Lines, lines...)
	}
	if x.Credit != nil {
		return c, x.Credit.compute(&c)
	}
	amounts := make([]int64, len(c.Lines))
	for i, l := range c.Lines {
		amounts[i] = l.Amount
	}
	if c.Net, err = money.Add(amounts...); err != nil {
		return c, err
	}
	if c.Due, err = t.On(c.Net); err != nil {
		return c, err
	}
	c.Total, err = money.Add(c.Net, c.Due)
	return c, err
}
