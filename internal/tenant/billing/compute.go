package billing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// The kinds of lines.
const (
	kindBase   = "base"   // a period in advance
	kindUnused = "unused" // what is left of a period, credited
	kindRest   = "rest"   // what is left of a period, charged
	kindUsage  = "usage"  // what was used beyond what is included
	kindCap    = "cap"    // what of it exceeds the budget, and is not charged
	kindCredit = "credit" // of a credit note

	kindDiscount = "discount" // by a coupon
)

// basis is what an invoice is computed from. It is stored, and with it, the plan versions and the sealed usage the
// invoice can be computed again, to the byte.
type basis struct {
	Charges []charge
	Usage   *usageSpan   // Optional
	Coupon  *discount    `json:",omitempty"` // Optional: off the base of the period
	Credit  *correction  // Optional: of a credit note
	Frozen  *frozenBasis // once it is final
}

// charge is a part of a version's price.
type charge struct {
	Kind        string
	Version     VersionID
	From, To    db.Time
	Part, Whole int64 // hours
}

// usageSpan is usage that is charged by a version's rates.
type usageSpan struct {
	Version  VersionID
	From, To db.Time
	Drafted  bool
	Budget   int64 // the most that is charged for all meters; set when it is drafted
	// Parts of days, which are not stored as long as invoices are: the first and the last. Set when it is drafted.
	Edges edges
}

type edges = map[usage.Meter][]usage.Stretch

// frozenBasis is what else an invoice says, as it was when it got its number.
type frozenBasis struct {
	Number      string
	FinalizedAt db.Time
	DueAt       db.Time
	Seller      Settings
	Buyer       Profile
	Credit      int64 // that paid a part of it at once
}

func baseCharge(v VersionID, from, to db.Time) charge {
	n := hours(from, to)
	return charge{Kind: kindBase, Version: v, From: from, To: to, Part: n, Whole: n}
}

// Line is a line of an invoice. Its amount is without tax.
type Line struct {
	Kind     string    `json:"kind"`
	Text     string    `json:"text"`
	Amount   int64     `json:"amount"`
	Plan     string    `json:"plan"`
	Version  VersionID `json:"version"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	Meter    string    `json:"meter,omitempty"`
	Tier     int       `json:"tier,omitempty"` // from 1
	Quantity int64     `json:"quantity,omitempty"`
	Digest   string    `json:"digest,omitempty"` // SHA-256 of the usage that it charges
}

// computed is what a basis comes to.
type computed struct {
	Lines           []Line
	Currency        money.Currency
	Tax             tax
	Net, Due, Total int64 // Due is the tax
}

// compute turns a basis into lines and sums.
func (b *Billing) compute(ctx context.Context, r db.Reader, owner id.Owner, x basis, t tax) (c computed, err error) {
	c.Tax = t
	versions := map[VersionID]Version{}
	version := func(id VersionID) (Version, error) {
		if v, ok := versions[id]; ok {
			return v, nil
		}
		v, err := b.version(ctx, r, id)
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
		l := Line{Kind: ch.Kind, Plan: v.Plan, Version: v.ID, From: ch.From.String(), To: ch.To.String()}
		if l.Amount, err = money.Share(v.Amount, ch.Part, ch.Whole); err != nil {
			return c, err
		}
		switch ch.Kind {
		case kindBase:
			l.Text = v.Title + ", " + span(ch.From, ch.To)
		case kindUnused:
			l.Amount = -l.Amount
			l.Text = "Unused time on " + v.Title + ", " + span(ch.From, ch.To)
		case kindRest:
			l.Text = "Remaining time on " + v.Title + ", " + span(ch.From, ch.To)
		}
		c.Lines = append(c.Lines, l)
	}
	if x.Coupon != nil {
		var price int64
		for _, l := range c.Lines {
			price += l.Amount
		}
		l, err := x.Coupon.line(max(0, price))
		if err != nil {
			return c, err
		}
		c.Lines = append(c.Lines, l)
	}
	if u := x.Usage; u != nil {
		v, err := version(u.Version)
		if err != nil {
			return c, err
		}
		lines, err := b.usageLines(ctx, r, owner, *u, v)
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
	if c.Due, err = t.on(c.Net); err != nil {
		return c, err
	}
	c.Total, err = money.Add(c.Net, c.Due)
	return c, err
}

// usageLines charges what was used beyond what is included, up to the budget.
func (b *Billing) usageLines(ctx context.Context, r db.Reader, owner id.Owner, u usageSpan, v Version) (lines []Line, err error) {
	used, err := b.c.Usage.Between(ctx, r, owner, u.From, u.To)
	if err != nil {
		return nil, err
	}
	var sum int64
	for _, m := range usage.Meters {
		rate, ok := v.Rates[m]
		if !ok {
			continue
		}
		stretches := used[m]
		if u.Drafted { // whole days as they are stored, parts of days as they were
			stretches = slices.DeleteFunc(slices.Clone(stretches), func(s usage.Stretch) bool { return !u.whole(s.At) })
			stretches = append(stretches, u.Edges[m]...)
			slices.SortFunc(stretches, func(x, y usage.Stretch) int { return int(x.At - y.At) })
		}
		digest, quantity := sha256.New(), int64(0)
		for _, s := range stretches {
			if quantity, err = money.Add(quantity, s.Quantity); err != nil {
				return nil, err
			}
			digestUsage(digest, m, s)
		}
		parts, err := rate.Price(quantity)
		if err != nil {
			return nil, fmt.Errorf("price %s: %w", m, err)
		}
		for _, p := range parts {
			lines = append(lines, Line{
				Kind: kindUsage, Plan: v.Plan, Version: v.ID, From: u.From.String(), To: u.To.String(), Meter: string(m), Tier: p.Tier + 1,
				Quantity: p.Quantity, Amount: p.Amount, Digest: hex.EncodeToString(digest.Sum(nil)),
				Text: meterText(m, p.Quantity) + " beyond what is included, " + span(u.From, u.To),
			})
			if sum, err = money.Add(sum, p.Amount); err != nil {
				return nil, err
			}
		}
	}
	if over := sum - u.Budget; over > 0 {
		lines = append(lines, Line{
			Kind: kindCap, Plan: v.Plan, Version: v.ID, From: u.From.String(), To: u.To.String(), Amount: -over,
			Text: "Beyond the budget, not charged",
		})
	}
	return lines, nil
}

// whole reports whether a stretch that begins then is a whole day of the span.
func (u usageSpan) whole(at db.Time) bool {
	return at == floor(at, day) && at >= u.From && at.Add(day) <= u.To
}

func digestUsage(h hash.Hash, m usage.Meter, s usage.Stretch) {
	fmt.Fprintf(h, "%s %d %d\n", m, int64(s.At), s.Quantity)
}

// span writes from when to when, to the minute where that matters.
func span(from, to db.Time) string {
	form := time.DateOnly
	if floor(from, day) != from || floor(to, day) != to {
		form = "2006-01-02 15:04"
	}
	return from.Time().UTC().Format(form) + " to " + to.Time().UTC().Format(form) + " UTC"
}

// meterText writes a quantity of a meter for people.
func meterText(m usage.Meter, n int64) string {
	scaled := func(name, unit string, per int64) string {
		hundredths, err := money.MulDiv(n, 100, per)
		if err != nil {
			return name + ": " + strconv.FormatInt(n, 10)
		}
		return name + ": " + money.Currency("").Decimal(hundredths) + " " + unit
	}
	switch m {
	case usage.Bandwidth:
		return scaled("Bandwidth", "GiB", 1<<30)
	case usage.Requests:
		return "Requests: " + strconv.FormatInt(n, 10)
	case usage.Build:
		return scaled("Build time", "minutes", 60_000)
	case usage.Storage:
		return scaled("Storage", "GiB hours", 1<<30)
	case usage.Backups:
		return scaled("Backups", "GiB hours", 1<<30)
	case usage.Memory:
		return scaled("Memory", "GiB hours", 1024*3600)
	case usage.CPU:
		return scaled("CPU time", "hours", 3_600_000)
	}
	return string(m) + ": " + strconv.FormatInt(n, 10)
}
