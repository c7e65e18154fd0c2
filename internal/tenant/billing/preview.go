package billing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
)

const (
	Subscribe = "subscribe"
	Change    = "change"
	Cancel    = "cancel"
)

// Action is a change of an owner's subscription.
type Action struct {
	Kind   string
	Choice plan.Choice // of Subscribe and Change
	Now    bool        // of Cancel: immediately instead of at the period's end
	Coupon string      // of Subscribe. Optional.
	// Invoiced lets a subscription begin without a required card. Only operators set it.
	Invoiced bool `json:",omitempty"`
}

// Quote is the effect and price of an action.
type Quote struct {
	Action    Action
	Version   plan.VersionID  // the resulting version
	At        db.Time         // when it takes effect
	Lines     []document.Line // invoiced at once
	Currency  money.Currency
	Net       int64
	Tax       int64
	Total     int64
	TaxPoints int64
	TaxNote   string
	Credit    int64 // credit that pays part of it
	DueNow    int64
	NextAt    db.Time // start of the next invoice's period; 0: none
	Next      int64   // the next invoice's base price, without tax and usage
	Exceeds   []limits.Use
}

// Digest identifies the quote. [Billing.DoTx] refuses to act if the quote has changed.
func (q Quote) Digest() string {
	text, _ := json.Marshal(q)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// decision is a quote with the data to carry it out.
type decision struct {
	Quote
	sub      Subscription // of Change and Cancel
	old, new plan.Version
	now      bool         // Change: at once
	coupon   *plan.Coupon // only for Subscribe
	trial    time.Duration
}

// Preview returns the effect and price of an action without performing it.
func (b *Billing) Preview(ctx context.Context, r db.Reader, owner id.Owner, a Action) (Quote, error) {
	p, err := b.decide(ctx, r, owner, a)
	return p.Quote, err
}

func (b *Billing) decide(ctx context.Context, r db.Reader, owner id.Owner, a Action) (p decision, err error) {
	now := floor(b.now(), hour)
	p.Action, p.At = a, now
	s, err := b.Subscription(ctx, r, owner)
	switch {
	case a.Kind == Subscribe && err == nil:
		return p, fault.New(fault.Conflict, "subscription_exists", "There is a subscription already", "change its plan instead")
	case a.Kind == Subscribe && fault.Is(err, fault.NotFound):
	case err != nil:
		return p, err
	}
	p.sub = s
	if s.ID != "" {
		if p.old, err = b.Version(ctx, r, s.Version); err != nil {
			return p, err
		}
	}
	var x basis
	switch a.Kind {
	case Subscribe:
		x, err = b.planSubscribe(ctx, r, owner, &p, now)
	case Change:
		x, err = b.planChange(ctx, r, &p, now)
	case Cancel:
		p.Version, p.Currency = s.Version, p.old.Currency
		if !a.Now && s.Status != Paused {
			p.At = s.End
		}
		return p, nil
	default:
		err = fault.InvalidField("action", "action must be subscribe, change or cancel", a.Kind)
	}
	if err != nil {
		return p, err
	}
	p.Version, p.Currency = p.new.ID, p.new.Currency
	settings, err := b.SettingsFor(ctx, r, owner)
	if err != nil {
		return p, err
	}
	buyer, err := b.Profile(ctx, r, owner)
	if err != nil {
		return p, err
	}
	c, err := b.compute(ctx, r, owner, x, party.TaxFor(settings, buyer))
	if err != nil {
		return p, err
	}
	has, err := b.creditOf(ctx, r, owner, p.Currency)
	if err != nil {
		return p, err
	}
	p.Lines, p.Net, p.Tax, p.Total, p.TaxPoints, p.TaxNote = c.Lines, c.Net, c.Due, c.Total, c.Tax.BasisPoints, c.Tax.Note
	if len(p.Lines) > 0 { // otherwise nothing is invoiced at once
		p.Credit = min(has, p.Total)
	}
	p.DueNow = p.Total - p.Credit
	p.Exceeds, err = b.exceeds(ctx, r, owner, p.new)
	return p, err
}

func (b *Billing) planSubscribe(ctx context.Context, r db.Reader, owner id.Owner, p *decision, now db.Time) (x basis, err error) {
	if p.new, err = b.Offer(ctx, r, owner, p.Action.Choice, ""); err != nil {
		return x, err
	}
	var open int
	if err := r.QueryRow(ctx, `SELECT count(*) FROM billing_invoices WHERE owner_id = $1 AND status = 'open' AND due_at <= $2`, owner,
		b.now()).Scan(&open); err != nil {
		return x, fmt.Errorf("look for overdue invoices: %w", err)
	}
	if open > 0 {
		return x, fault.New(fault.Conflict, "unpaid_invoices", "An invoice is overdue", "pay it first, then subscribe")
	}
	trial, err := b.trialOf(ctx, r, owner, p.new)
	if err != nil {
		return x, err
	}
	if p.Action.Coupon != "" {
		c, err := b.Redeemable(ctx, r, owner, p.Action.Coupon, p.new)
		if err != nil {
			return x, err
		}
		p.coupon, x.Coupon = &c, &plan.Discount{Code: c.Code, Points: c.Points, Amount: c.Amount}
	}
	p.Next = p.new.Amount
	p.trial = trial
	if trial > 0 {
		p.NextAt = now.Add(trial)
		return basis{}, nil
	}
	p.NextAt = p.new.Term.Boundary(now, 1)
	x.Charges = []charge{baseCharge(p.new.ID, now, p.NextAt)}
	return x, nil
}

// trialOf returns the length of the owner's trial of a plan. A person gets one trial, of any plan, across their
// personal account and teams.
func (b *Billing) trialOf(ctx context.Context, r db.Reader, owner id.Owner, v plan.Version) (time.Duration, error) {
	var had int
	if err := r.QueryRow(ctx, `SELECT count(*) FROM billing_profiles WHERE owner_id IN (`+party.SameMaker+`) AND trial_at > 0`, owner).
		Scan(&had); err != nil {
		return 0, fmt.Errorf("look for trials: %w", err)
	}
	if had > 0 {
		return 0, nil
	}
	return time.Duration(v.TrialDays) * day, nil
}

// planChange decides whether a change is an upgrade, which takes effect at once, or waits for the period's end.
func (b *Billing) planChange(ctx context.Context, r db.Reader, p *decision, now db.Time) (x basis, err error) {
	s := p.sub
	if s.Status == Canceled || s.Status == Paused {
		return x, fault.New(fault.Conflict, "subscription_"+string(s.Status), "The subscription is "+string(s.Status),
			"resume it, or pay what is open, before the plan is changed")
	}
	if p.new, err = b.Offer(ctx, r, s.Owner, p.Action.Choice, p.old.Currency); err != nil {
		return x, err
	}
	if p.new.ID == p.old.ID && s.Next == "" {
		return x, fault.New(fault.Conflict, "plan_unchanged", "This is the plan already", "")
	}
	p.At, p.NextAt, p.Next = s.End, s.End, p.new.Amount
	if p.new.ID == p.old.ID || p.new.Currency != p.old.Currency && !s.trial() {
		return x, nil // back to the current plan, or another currency: with the next period
	}
	if s.trial() {
		p.At, p.now = now, true
		return x, nil
	}
	charges, end := s.proration(p.old, p.new, min(max(now, s.Start), s.End))
	var sum int64
	for n, ch := range charges {
		v := p.new
		if n == 0 {
			v = p.old
		}
		amount, err := money.Share(v.Amount, ch.Part, ch.Whole)
		if err != nil {
			return x, err
		}
		if n == 0 {
			amount = -amount
		}
		sum += amount
	}
	if p.new.Amount <= p.old.Amount && p.new.Term == p.old.Term || p.old.Term == plan.Year && p.new.Term == plan.Month || sum < 0 {
		return x, nil // a downgrade
	}
	p.At, p.now, p.NextAt = now, true, end
	return basis{Charges: charges}, nil
}

// exceeds returns the plan's limits that are below the owner's current use. Nothing is deleted, but what exceeds a
// limit can't grow.
func (b *Billing) exceeds(ctx context.Context, r db.Reader, owner id.Owner, v plan.Version) (over []limits.Use, err error) {
	if b.c.Limits == nil {
		return nil, nil
	}
	used, err := b.c.Limits.Use(ctx, r, owner)
	if err != nil {
		return nil, err
	}
	for _, u := range used {
		if limit, ok := v.Limits[u.Name]; ok && u.Used > limit && !slices.Contains([]limits.Name{limits.Bandwidth, limits.BuildMinutes}, u.Name) {
			over = append(over, limits.Use{Name: u.Name, Limit: limit, Used: u.Used})
		}
	}
	return over, nil
}

// dueTx takes the owner's lock and performs the subscription's due transitions, so that no decision is based on a
// period that has ended but that Tick hasn't reached.
func (b *Billing) dueTx(ctx context.Context, tx *db.Tx, owner id.Owner) error {
	if err := party.LockTx(ctx, tx, owner); err != nil {
		return err
	}
	s, err := b.Subscription(ctx, tx, owner)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.advanceTx(ctx, tx, string(s.ID))
}

// DoTx performs an action. With a digest it refuses unless the price is the one that the preview showed.
func (b *Billing) DoTx(ctx context.Context, tx *db.Tx, owner id.Owner, a Action, digest string) (Subscription, Quote, error) {
	if err := b.dueTx(ctx, tx, owner); err != nil {
		return Subscription{}, Quote{}, err
	}
	if a.Kind == Subscribe { // a person's accounts share one trial and one use of each coupon
		if err := party.LockMakerTx(ctx, tx, owner); err != nil {
			return Subscription{}, Quote{}, err
		}
	}
	p, err := b.decide(ctx, tx, owner, a)
	if err != nil {
		return p.sub, p.Quote, err
	}
	if digest != "" && digest != p.Digest() {
		return p.sub, p.Quote, errPriceChanged
	}
	s := p.sub
	switch {
	case a.Kind == Subscribe:
		if need, err := b.NeedsCard(ctx, tx, owner, a, p.new); err != nil {
			return s, p.Quote, err
		} else if need {
			return s, p.Quote, errNeedsCard
		}
		s, err = b.subscribeTx(ctx, tx, owner, p.new, p.coupon)
	case a.Kind == Cancel:
		s, err = b.cancelTx(ctx, tx, s, a.Now, ReasonRequested)
	case p.now:
		s, err = b.upgradeTx(ctx, tx, s, p.old, p.new)
	default:
		s.Next = p.new.ID
		if p.new.ID == p.old.ID {
			s.Next = ""
		}
		err = b.writeTx(ctx, tx, s)
	}
	return s, p.Quote, err
}

// ResumeTx revokes a cancellation before the period ends.
func (b *Billing) ResumeTx(ctx context.Context, tx *db.Tx, owner id.Owner) (Subscription, error) {
	if err := b.dueTx(ctx, tx, owner); err != nil {
		return Subscription{}, err
	}
	s, err := b.Subscription(ctx, tx, owner)
	if err != nil {
		return s, err
	}
	return b.resumeTx(ctx, tx, s)
}

// EndTx ends an owner's subscription, now or at the period's end. Only operators use it.
func (b *Billing) EndTx(ctx context.Context, tx *db.Tx, owner id.Owner, now bool) (Subscription, error) {
	if err := b.dueTx(ctx, tx, owner); err != nil {
		return Subscription{}, err
	}
	s, err := b.Subscription(ctx, tx, owner)
	if err != nil {
		return s, err
	}
	return b.cancelTx(ctx, tx, s, now, ReasonOperator)
}
