package billing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// usageSpan is the usage of a period. Each hour is charged at the rates of the version in force then.
type usageSpan struct {
	Version  plan.VersionID // in force at the end
	From, To db.Time
	Earlier  []inForce `json:",omitempty"` // earlier versions, oldest first
	// Since, if set, is before From: usage from Since to From was charged on another invoice but counts toward the
	// included amounts.
	Since   db.Time `json:",omitempty"`
	Planned db.Time `json:",omitempty"` // the regular end of a period that ended early
	Drafted bool
	Budget  int64 // maximum charged over all meters; set at drafting
	// Edges holds the usage of partial days, which is stored for less time than invoices. Set at drafting.
	Edges edges
}

type edges = map[usage.Meter][]usage.Stretch

// inForce says until when a version was in force.
type inForce struct {
	Version plan.VersionID
	To      db.Time
}

// part is a stretch of a span in which one version, or none, was in force.
type part struct {
	Version  plan.VersionID // empty: usage counts but isn't charged
	From, To db.Time
}

func (u usageSpan) parts() (list []part) {
	from := u.From
	if u.Since > 0 {
		list = append(list, part{"", u.Since, from})
	}
	for _, e := range u.Earlier {
		list, from = append(list, part{e.Version, from, e.To}), e.To
	}
	return append(list, part{u.Version, from, u.To})
}

// has reports whether the stretch begins within the part.
func (p part) has(s usage.Stretch) bool { return s.At >= p.From && s.At < p.To }

// whole reports whether the stretch is a full day within the part.
func (p part) whole(s usage.Stretch) bool {
	return s.At == floor(s.At, day) && s.At >= p.From && s.At.Add(day) <= p.To
}

// spanTx returns the usage of a subscription's period that ends at to, or nil if no version in force has rates.
//
// The invoices of plan changes record which version was in force when. A period that follows one that ended early
// continues its counts, so that canceling and resubscribing can't gain extra included amounts.
func (b *Billing) spanTx(ctx context.Context, tx *db.Tx, s Subscription, to, planned db.Time) (*usageSpan, error) {
	if s.trial() || s.Start >= to {
		return nil, nil
	}
	u := &usageSpan{Version: s.Version, From: s.Start, To: to}
	if to < planned {
		u.Planned = planned
	}
	changes, err := b.bases(ctx, tx, `subscription_id = $1 AND cause LIKE 'change:%' ORDER BY length(cause), cause`, s.ID)
	if err != nil {
		return nil, err
	}
	for last := s.Start; ; {
		at := slices.IndexFunc(changes, func(x basis) bool {
			return len(x.Charges) > 1 && x.Charges[1].Kind == document.Rest && x.Charges[1].From > last
		})
		if at < 0 {
			break
		}
		was := changes[at].Charges[0].Version
		last = changes[at].Charges[1].From
		if last >= to { // changed in the period's last hour
			u.Version = was
			break
		}
		u.Earlier = append(u.Earlier, inForce{was, last})
	}
	if s.period == 0 {
		if u.Since, err = b.countsSince(ctx, tx, s); err != nil {
			return nil, err
		}
	}
	for _, p := range u.parts() {
		if p.Version == "" {
			continue
		}
		if v, err := b.Version(ctx, tx, p.Version); err != nil || len(v.Rates) > 0 {
			return u, err
		}
	}
	return nil, nil
}

// countsSince returns where counting begins in a subscription's first period: where the previous period with rates
// began, if it ended early and would still be running, otherwise 0.
func (b *Billing) countsSince(ctx context.Context, r db.Reader, s Subscription) (since db.Time, err error) {
	const some = 20 // several may have been created at once after an outage
	list, err := b.bases(ctx, r, `owner_id = $1 AND basis LIKE '%"Usage":{%' ORDER BY created_at DESC LIMIT $2`, s.Owner, some)
	var last usageSpan
	for _, x := range list {
		if x.Usage.To > last.To && x.Usage.To <= s.Start {
			last = *x.Usage
		}
	}
	if last.Planned > s.Start {
		since = cmp.Or(last.Since, last.From)
	}
	return since, err
}

func (b *Billing) bases(ctx context.Context, r db.Reader, which string, args ...any) ([]basis, error) {
	rows, err := r.Query(ctx, `SELECT basis FROM billing_invoices WHERE `+which, args...)
	list, err := db.Collect(rows, err, func(s db.Scanner) (x basis, err error) {
		var text string
		if err := s.Scan(&text); err != nil {
			return x, err
		}
		return x, json.Unmarshal([]byte(text), &x)
	})
	if err != nil {
		return nil, fmt.Errorf("read what invoices are computed from: %w", err)
	}
	return list, nil
}

// sealTx stores in a basis what can't be read later: partial days' usage and the period's budget.
func (b *Billing) sealTx(ctx context.Context, tx *db.Tx, owner id.Owner, x *basis) error {
	u := x.Usage
	if u == nil || u.Drafted {
		return nil
	}
	for _, p := range u.parts() {
		used, err := b.c.Usage.Between(ctx, tx, owner, p.From, p.To)
		if err != nil {
			return err
		}
		for m, list := range used {
			list = slices.DeleteFunc(list, p.whole)
			if len(list) == 0 {
				continue
			}
			if u.Edges == nil {
				u.Edges = edges{}
			}
			u.Edges[m] = append(u.Edges[m], list...)
		}
	}
	v, err := b.Version(ctx, tx, u.Version)
	if err != nil {
		return err
	}
	u.Drafted = true
	u.Budget, err = b.budgetWithin(ctx, tx, owner, v.Currency, u.From, u.To)
	return err
}

// usageLines charges usage beyond the included amounts, up to the budget. Included amounts and tiers count from the
// start of the period; after a plan change the new rates apply to later usage.
func (b *Billing) usageLines(
	ctx context.Context, r db.Reader, owner id.Owner, u usageSpan, version func(plan.VersionID) (plan.Version, error),
) (lines []document.Line, err error) {
	v, err := version(u.Version)
	if err != nil {
		return nil, err
	}
	parts := u.parts()
	used := make([]edges, len(parts))
	for n, p := range parts {
		if used[n], err = b.c.Usage.Between(ctx, r, owner, p.From, p.To); err != nil {
			return nil, err
		}
	}
	var sum int64
	for _, m := range usage.Meters {
		var before int64
		for n, p := range parts {
			stretches := used[n][m]
			if u.Drafted { // whole days from the database, partial days from the basis
				stretches = slices.DeleteFunc(slices.Clone(stretches), func(s usage.Stretch) bool { return !p.whole(s) })
				stretches = append(stretches, slices.DeleteFunc(slices.Clone(u.Edges[m]), func(s usage.Stretch) bool { return !p.has(s) })...)
				slices.SortFunc(stretches, func(x, y usage.Stretch) int { return int(x.At - y.At) })
			}
			digest, quantity := sha256.New(), int64(0)
			for _, s := range stretches {
				if quantity, err = money.Add(quantity, s.Quantity); err != nil {
					return nil, err
				}
				digestUsage(digest, m, s)
			}
			var rate money.Rate
			if p.Version != "" {
				in, err := version(p.Version)
				if err != nil {
					return nil, err
				}
				v, rate = in, in.Rates[m]
			}
			priced, err := rate.Price(before, quantity)
			if err != nil {
				return nil, fmt.Errorf("price %s: %w", m, err)
			}
			for _, x := range priced {
				lines = append(lines, document.Line{
					Kind: document.Usage, Plan: v.Plan, Version: v.ID, From: p.From.String(), To: p.To.String(), Meter: string(m),
					Tier: x.Tier + 1, Quantity: x.Quantity, Amount: x.Amount, Digest: hex.EncodeToString(digest.Sum(nil)),
					Text: document.Quantity(m, x.Quantity) + " beyond what is included, " + document.Span(p.From, p.To),
				})
				if sum, err = money.Add(sum, x.Amount); err != nil {
					return nil, err
				}
			}
			before += quantity
		}
	}
	if over := sum - u.Budget; over > 0 {
		lines = append(lines, document.Line{
			Kind: document.Cap, Plan: v.Plan, Version: v.ID, From: u.From.String(), To: u.To.String(), Amount: -over,
			Text: "Beyond the budget, not charged",
		})
	}
	return lines, nil
}

func digestUsage(h hash.Hash, m usage.Meter, s usage.Stretch) {
	fmt.Fprintf(h, "%s %d %d\n", m, int64(s.At), s.Quantity)
}
