// Package plans owns the operations of plans, the account's subscription, its invoices and payments. They exist if
// billing is on.
package plans

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"slipway/internal/backup/retention"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/document"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/stripe"
	"slipway/internal/tenant/usage"
	"slipway/internal/web/api/contract"
)

// Money is an amount.
type Money struct {
	Amount   int64  `json:"amount" doc:"In the currency's smallest unit: 1900 EUR are 19.00 EUR." example:"1900"`
	Currency string `json:"currency" minLength:"3" maxLength:"3" example:"EUR"`
}

func inMoney(c money.Currency, n int64) Money { return Money{n, string(c)} }

// PlanBody is a plan that can be chosen.
type PlanBody struct {
	Plan      string           `json:"plan" example:"pro"`
	Title     string           `json:"title" example:"Pro"`
	Interval  string           `json:"interval" enum:"month,year"`
	Version   int64            `json:"version" doc:"Version of the plan. Versions never change; subscriptions keep theirs."`
	Price     Money            `json:"price" doc:"Price of a period, without tax."`
	TrialDays int64            `json:"trialDays" doc:"Length of the trial. Each account gets one trial."`
	Limits    map[string]int64 `json:"limits" doc:"Limits of the account by name, as in GET /account. Limits that are absent are the installation's."`
	Features  []string         `json:"features" doc:"Features that the plan includes: custom_domains, previews, team, wordpress."`
	Rates     []RateBody       `json:"rates" doc:"Prices of usage beyond what is included, charged to accounts with a budget."`
}

// RateBody is the price of a meter.
type RateBody struct {
	Meter    string     `json:"meter" example:"bandwidth.bytes"`
	Included int64      `json:"included" doc:"Quantity included in a period."`
	Tiers    []TierBody `json:"tiers"`
}

// TierBody is the price of a part of a quantity.
type TierBody struct {
	UpTo   *int64 `json:"upTo" doc:"End of the tier, counted from what is included. Null: no end."`
	Amount int64  `json:"amount" doc:"Price in the currency's smallest unit."`
	Per    int64  `json:"per" doc:"Number of units that amount is the price of."`
}

// SubscriptionBody is the account's subscription.
type SubscriptionBody struct {
	ID                 billing.SubscriptionID `json:"id" example:"sub_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Plan               string                 `json:"plan" example:"pro"`
	Interval           string                 `json:"interval" enum:"month,year"`
	Price              Money                  `json:"price"`
	Status             string                 `json:"status" enum:"trialing,active,past_due,paused,canceled,expired"`
	CurrentPeriodStart string                 `json:"currentPeriodStart" format:"date-time"`
	CurrentPeriodEnd   string                 `json:"currentPeriodEnd" format:"date-time"`
	TrialEnd           *string                `json:"trialEnd" format:"date-time"`
	CancelAt           *string                `json:"cancelAt" format:"date-time" doc:"Time at which access ends. Null: the subscription is renewed."`
	Reason             *string                `json:"reason" enum:"requested,unpaid,operator" doc:"Why it was canceled or has expired."`
	NextPlan           *string                `json:"nextPlan" doc:"Plan from the next period on. Null: the same."`
	CreatedAt          string                 `json:"createdAt" format:"date-time"`
}

// ChoiceFields identify a plan in requests.
type ChoiceFields struct {
	Plan     string `json:"plan" maxLength:"40" example:"pro"`
	Interval string `json:"interval,omitempty" enum:"month,year" doc:"Default: month, or year if the plan has no price by the month."`
	Currency string `json:"currency,omitempty" maxLength:"3" doc:"Default: the current plan's, if the plan has a price in it." example:"EUR"`
	Digest   string `json:"digest,omitempty" maxLength:"64" doc:"Digest of a preview. If the result would differ from the preview, nothing changes and the answer is 409 price_changed."`
}

type previewIn struct {
	Body struct {
		Action   string `json:"action" enum:"subscribe,change,cancel"`
		Plan     string `json:"plan,omitempty" maxLength:"40" example:"pro"`
		Interval string `json:"interval,omitempty" enum:"month,year"`
		Currency string `json:"currency,omitempty" maxLength:"3"`
		Coupon   string `json:"coupon,omitempty" maxLength:"40" doc:"For subscribe: code of a coupon."`
		Now      bool   `json:"now,omitempty" doc:"For cancel: end the subscription at once."`
	}
}

// PreviewBody is the effect and price of an action.
type PreviewBody struct {
	Digest      string        `json:"digest" doc:"Send it with the action to get exactly this result or an error."`
	EffectiveAt string        `json:"effectiveAt" format:"date-time"`
	Lines       []InvoiceLine `json:"lines" doc:"Lines of the invoice that is issued at once."`
	Net         Money         `json:"net"`
	Tax         Money         `json:"tax"`
	TaxNote     *string       `json:"taxNote"`
	Total       Money         `json:"total"`
	Credit      Money         `json:"credit" doc:"Part of the total that is paid from credit. Negative: added to it, because it was too little to be charged before."`
	DueNow      Money         `json:"dueNow"`
	NextInvoice *nextInvoice  `json:"nextInvoice" doc:"Null: there is none."`
	Exceeds     []excess      `json:"exceeds" doc:"Limits of the plan that the account already exceeds. Nothing is deleted; what exceeds them can't grow."`
}

type nextInvoice struct {
	At  string `json:"at" format:"date-time" doc:"Start of the period."`
	Net Money  `json:"net" doc:"Price of the period without tax and usage."`
}

type excess struct {
	Name    string `json:"name" example:"sites"`
	Limit   int64  `json:"limit"`
	Current int64  `json:"current"`
}

// InvoiceLine is a line of an invoice.
type InvoiceLine struct {
	Kind     string `json:"kind" enum:"base,unused,rest,discount,usage,cap,credit"`
	Text     string `json:"text"`
	Amount   int64  `json:"amount" doc:"Without tax, in the currency's smallest unit."`
	Meter    string `json:"meter" doc:"For usage: the meter. Else empty."`
	Quantity int64  `json:"quantity" doc:"For usage: the quantity that is charged."`
}

// InvoiceBody is an invoice or a credit note.
type InvoiceBody struct {
	ID             billing.InvoiceID      `json:"id" example:"inv_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Kind           string                 `json:"kind" enum:"invoice,credit_note"`
	Number         *string                `json:"number" doc:"Null for drafts." example:"2026-000412"`
	Status         string                 `json:"status" enum:"draft,open,paid,void,uncollectible,issued"`
	Net            Money                  `json:"net"`
	Tax            Money                  `json:"tax"`
	Total          Money                  `json:"total"`
	Remaining      Money                  `json:"remaining" doc:"Amount left to pay."`
	SubscriptionID billing.SubscriptionID `json:"subscriptionId"`
	Corrects       *string                `json:"corrects" doc:"For credit notes: id of the invoice."`
	IssuedAt       *string                `json:"issuedAt" format:"date-time"`
	DueAt          *string                `json:"dueAt" format:"date-time"`
	CreatedAt      string                 `json:"createdAt" format:"date-time"`
}

// InvoiceDetails is an invoice with its lines.
type InvoiceDetails struct {
	InvoiceBody
	Lines []InvoiceLine `json:"lines" doc:"Empty for drafts."`
}

// PaymentBody is an attempt to pay an invoice.
type PaymentBody struct {
	ID            billing.PaymentID `json:"id" example:"pay_25o5kzh3mc7yw4tn6pqd2xlfae"`
	InvoiceID     billing.InvoiceID `json:"invoiceId"`
	Amount        Money             `json:"amount"`
	Status        string            `json:"status" enum:"pending,processing,requires_action,unknown,completed,failed"`
	Provider      string            `json:"provider" enum:"manual,stripe"`
	Refunded      Money             `json:"refunded" doc:"Part of the amount that was refunded, or is being refunded."`
	Attempt       int64             `json:"attempt"`
	FailureCode   *string           `json:"failureCode"`
	NextAttemptAt *string           `json:"nextAttemptAt" format:"date-time"`
	CreatedAt     string            `json:"createdAt" format:"date-time"`
}

// ProfileFields are the billing profile.
type ProfileFields struct {
	Name    string `json:"name" maxLength:"200" example:"Acme GmbH"`
	Address string `json:"address,omitempty" maxLength:"600" doc:"At most 6 lines."`
	Country string `json:"country" maxLength:"2" doc:"ISO 3166." example:"DE"`
	VATID   string `json:"vatId,omitempty" maxLength:"15" example:"DE123456789"`
	Email   string `json:"email,omitempty" maxLength:"254"`
}

// DeletionBody is the announced deletion of an account's sites.
type DeletionBody struct {
	At      string `json:"at" format:"date-time" doc:"Time from which the sites are backed up and then deleted, unless the open invoices are paid before."`
	Notices int64  `json:"notices" doc:"Number of notices that were sent, of 3."`
}

// ProfileBody is the billing profile with the state of its VAT number.
type ProfileBody struct {
	Name     string        `json:"name"`
	Address  string        `json:"address"`
	Country  string        `json:"country"`
	VATID    string        `json:"vatId"`
	Email    string        `json:"email"`
	VATState string        `json:"vatState" enum:"none,unchecked,unconfirmed,valid,invalid" doc:"unconfirmed: it exists, and the seller has yet to confirm whose it is. VAT is charged unless it is valid."`
	Deletion *DeletionBody `json:"deletion" doc:"Announced deletion of the account's sites. Null: none."`
}

type invoiceIn struct {
	ID string `path:"id" doc:"The invoice's id. With .pdf after it the answer is the invoice as a PDF."`
}

type invoicesIn struct {
	Before billing.InvoiceID `query:"before" doc:"Id of an invoice: only older ones."`
	Limit  contract.Whole    `query:"limit" doc:"Number of invoices, at most 100. Default: 25."`
}

type cancelIn struct {
	Now string `query:"now" enum:"true,false" doc:"End the subscription at once. Nothing is refunded. Default: false, at the end of the period."`
}

// API answers the operations of plans and invoices.
type API struct {
	*contract.API
	Billing *billing.Billing
	Stripe  *stripe.Stripe // nil: cards aren't accepted
	Sellers *seller.Hosts
}

// Register registers the operations of plans and invoices.
func Register(core *contract.API, b *billing.Billing, s *stripe.Stripe, h *seller.Hosts) {
	a := &API{core, b, s, h}
	r := func(path, id, summary, doc, noun string) contract.Route {
		return contract.Route{
			Path: path, ID: id, Tag: "Billing", Summary: summary, Doc: doc, Scope: account.BillingRead, Noun: noun, Wide: true,
			Finds: slices.Contains([]string{"subscription", "card", "invoice", "action"}, noun), // the account may not have one
		}
	}
	w := func(path, id, summary, doc, noun string) contract.Route {
		x := r(path, id, summary, doc, noun)
		x.Scope = account.BillingWrite
		return x
	}
	contract.Get(a.API, r("/plans", "listPlans", "List plans", "Plans that can be chosen.", "plan"), a.listPlans)
	contract.Get(a.API, r("/subscription", "getSubscription", "Get the subscription",
		"The account's subscription. 404 if there is none.", "subscription"), a.getSubscription)
	subscribe := w("/subscription", "createSubscription", "Subscribe to a plan",
		"Begins with a trial if the plan has one and the account never had one, else with the first period and its invoice.", "subscription")
	subscribe.Status = 201
	contract.Post(a.API, subscribe, a.createSubscription)
	contract.Change(a.API, "PATCH", w("/subscription", "updateSubscription", "Change the plan",
		"An upgrade takes effect at once, with an invoice for the rest of the period. A downgrade, or another currency, takes "+
			"effect with the next period.", "subscription"),
		a.updateSubscription)
	contract.Change(a.API, "DELETE", w("/subscription", "cancelSubscription", "Cancel the subscription",
		"At the end of the period, or at once. Nothing is deleted.", "subscription"),
		a.cancelSubscription)
	contract.Post(a.API, w("/subscription/resume", "resumeSubscription", "Resume the subscription",
		"Takes a cancellation back before the period ends.", "subscription"), a.resumeSubscription)
	contract.Ask(a.API, r("/billing/preview", "previewBilling", "Preview an action",
		"What an action would do and cost. Nothing changes.", "action"), a.previewBilling)
	contract.Get(a.API, r("/billing/profile", "getBillingProfile", "Get the billing profile", "Recipient of the account's invoices.",
		"profile"), a.getBillingProfile)
	contract.Change(a.API, "PUT", w("/billing/profile", "setBillingProfile", "Set the billing profile",
		"Takes effect for invoices that are issued from now on.", "profile"), a.setBillingProfile)
	contract.Get(a.API, r("/billing/budget", "getBudget", "Get the budget",
		"The most that is charged for usage beyond what the plan includes, in a period.", "budget"), a.getBudget)
	contract.Change(a.API, "PUT", w("/billing/budget", "setBudget", "Set the budget",
		"Takes effect at once. What was used under a larger budget in the same period is charged up to that budget. 0 removes "+
			"the budget.", "budget"), a.setBudget)
	contract.Get(a.API, r("/invoices", "listInvoices", "List invoices", "Invoices and credit notes, the newest first.", "invoice"),
		a.listInvoices)
	contract.GetOrFile(a.API, r("/invoices/{id}", "getInvoice", "Get an invoice",
		"An invoice with its lines, or as a PDF if the id ends with `.pdf`.", "invoice"), a.getInvoice)
	contract.Get(a.API, r("/payments", "listPayments", "List payments", "The account's payments, the newest 100 first.", "payment"),
		a.listPayments)
	a.registerCards(r, w)
	a.registerOperator()
}

func (a *API) listPlans(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[PlanBody], error) {
	list, err := a.Billing.OffersTo(ctx, a.DB, c.Owner)
	return contract.Part(*in, contract.Each(list, showVersion), err)
}

func showVersion(v plan.Version) PlanBody {
	p := PlanBody{
		Plan: v.Plan, Title: v.Title, Interval: string(v.Term), Version: v.Number, Price: inMoney(v.Currency, v.Amount), TrialDays: v.TrialDays,
		Limits: map[string]int64{}, Features: append([]string{}, v.Features()...), Rates: []RateBody{},
	}
	for name, n := range v.Limits {
		p.Limits[string(name)] = n
	}
	for _, m := range usage.Meters {
		rate, ok := v.Rates[m]
		if !ok {
			continue
		}
		body := RateBody{Meter: string(m), Included: rate.Included, Tiers: []TierBody{}}
		for _, t := range rate.Tiers {
			tier := TierBody{Amount: t.Amount, Per: t.Per}
			if t.UpTo > 0 {
				tier.UpTo = &t.UpTo
			}
			body.Tiers = append(body.Tiers, tier)
		}
		p.Rates = append(p.Rates, body)
	}
	return p
}

func (a *API) showSubscription(ctx context.Context, r db.Reader, s billing.Subscription) (SubscriptionBody, error) {
	v, err := a.Billing.Version(ctx, r, s.Version)
	if err != nil {
		return SubscriptionBody{}, err
	}
	out := SubscriptionBody{
		ID: s.ID, Plan: v.Plan, Interval: string(v.Term), Price: inMoney(v.Currency, v.Amount), Status: string(s.Status),
		CurrentPeriodStart: s.Start.String(), CurrentPeriodEnd: s.End.String(), TrialEnd: contract.When(s.TrialEnd),
		CancelAt: contract.When(s.CancelAt()),
		Reason:   contract.Some(s.Reason), CreatedAt: s.CreatedAt.String(),
	}
	if s.Next != "" {
		next, err := a.Billing.Version(ctx, r, s.Next)
		if err != nil {
			return out, err
		}
		out.NextPlan = &next.Plan
	}
	return out, nil
}

func (a *API) getSubscription(ctx context.Context, c account.Caller, _ *struct{}) (SubscriptionBody, error) {
	s, err := a.Billing.Subscription(ctx, a.DB, c.Owner)
	if err != nil {
		return SubscriptionBody{}, err
	}
	return a.showSubscription(ctx, a.DB, s)
}

// billingAct performs a billing action.
func (a *API) billingAct(
	ctx context.Context, tx *db.Tx, c account.Caller, do billing.Action, digest, did string,
) (SubscriptionBody, audit.Event, error) {
	s, q, err := a.Billing.DoTx(ctx, tx, c.Owner, do, digest)
	if err != nil {
		return SubscriptionBody{}, audit.Event{}, err
	}
	out, err := a.showSubscription(ctx, tx, s)
	detail := out.Plan
	if out.NextPlan != nil {
		detail = *out.NextPlan + ", with the next period"
	} else if q.DueNow > 0 {
		detail += ", " + q.Currency.Format(q.DueNow) + " due now"
	}
	return out, audit.Event{Action: did, Subject: string(s.ID), Detail: detail}, err
}

func (f ChoiceFields) action(kind string) billing.Action {
	return billing.Action{Kind: kind, Choice: plan.Choice{Plan: f.Plan, Term: plan.Term(f.Interval), Currency: money.Currency(f.Currency)}}
}

type chooseIn struct{ Body ChoiceFields }

type subscribeIn struct {
	Body struct {
		ChoiceFields
		Coupon string `json:"coupon,omitempty" maxLength:"40" doc:"Code of a coupon. Each account can redeem a coupon once."`
	}
}

func (a *API) createSubscription(ctx context.Context, tx *db.Tx, c account.Caller, in *subscribeIn) (SubscriptionBody, audit.Event, error) {
	do := in.Body.action(billing.Subscribe)
	do.Coupon = in.Body.Coupon
	return a.billingAct(ctx, tx, c, do, in.Body.Digest, "subscription.created")
}

func (a *API) updateSubscription(ctx context.Context, tx *db.Tx, c account.Caller, in *chooseIn) (SubscriptionBody, audit.Event, error) {
	return a.billingAct(ctx, tx, c, in.Body.action(billing.Change), in.Body.Digest, "subscription.changed")
}

func (a *API) cancelSubscription(
	ctx context.Context, tx *db.Tx, c account.Caller, in *cancelIn,
) (_ SubscriptionBody, did audit.Event, _ error) {
	if err := contract.OneOf("now", in.Now, "true", "false"); err != nil {
		return SubscriptionBody{}, did, err
	}
	return a.billingAct(ctx, tx, c, billing.Action{Kind: billing.Cancel, Now: in.Now == "true"}, "", "subscription.canceled")
}

func (a *API) resumeSubscription(ctx context.Context, tx *db.Tx, c account.Caller, _ *struct{}) (SubscriptionBody, audit.Event, error) {
	s, err := a.Billing.ResumeTx(ctx, tx, c.Owner)
	if err != nil {
		return SubscriptionBody{}, audit.Event{}, err
	}
	out, err := a.showSubscription(ctx, tx, s)
	return out, audit.Event{Action: "subscription.resumed", Subject: string(s.ID), Detail: out.Plan}, err
}

func (a *API) previewBilling(ctx context.Context, c account.Caller, in *previewIn) (out PreviewBody, err error) {
	b := in.Body
	if b.Action != billing.Cancel && b.Plan == "" {
		return out, fault.New(fault.Invalid, "invalid_plan", "Invalid plan", "plan is required for this action")
	}
	do := ChoiceFields{Plan: b.Plan, Interval: b.Interval, Currency: b.Currency}.action(b.Action)
	do.Now, do.Coupon = b.Now, b.Coupon
	q, err := a.Billing.Preview(ctx, a.DB, c.Owner, do)
	if err != nil {
		return out, err
	}
	out = PreviewBody{
		Digest: q.Digest(), EffectiveAt: q.At.String(), Lines: contract.Each(q.Lines, showInvoiceLine), Net: inMoney(q.Currency, q.Net),
		Tax:     inMoney(q.Currency, q.Tax),
		TaxNote: contract.Some(q.TaxNote), Total: inMoney(q.Currency, q.Total), Credit: inMoney(q.Currency, q.Credit),
		DueNow:  inMoney(q.Currency, q.DueNow),
		Exceeds: contract.Each(q.Exceeds, func(u limits.Use) excess { return excess{string(u.Name), u.Limit, u.Used} }),
	}
	if q.NextAt > 0 {
		out.NextInvoice = &nextInvoice{q.NextAt.String(), inMoney(q.Currency, q.Next)}
	}
	return out, nil
}

func showInvoiceLine(l document.Line) InvoiceLine {
	return InvoiceLine{l.Kind, l.Text, l.Amount, l.Meter, l.Quantity}
}

func (a *API) showProfile(ctx context.Context, r db.Reader, p party.Profile, owner account.OwnerID) (ProfileBody, error) {
	deletion, err := a.deletion(ctx, r, owner)
	return ProfileBody{p.Name, p.Address, p.Country, p.VATID, p.Email, string(p.VAT), deletion}, err
}

// deletion returns the announced deletion of an account's sites, or nil.
func (a *API) deletion(ctx context.Context, r db.Reader, owner account.OwnerID) (*DeletionBody, error) {
	p, on, err := retention.Of(ctx, r, owner)
	if err != nil || !on {
		return nil, err
	}
	return &DeletionBody{p.DeleteAt.String(), p.Notices}, nil
}

func (a *API) getBillingProfile(ctx context.Context, c account.Caller, _ *struct{}) (ProfileBody, error) {
	p, err := a.Billing.Profile(ctx, a.DB, c.Owner)
	if err != nil {
		return ProfileBody{}, err
	}
	return a.showProfile(ctx, a.DB, p, c.Owner)
}

type profileIn struct{ Body ProfileFields }

func (a *API) setBillingProfile(ctx context.Context, tx *db.Tx, c account.Caller, in *profileIn) (ProfileBody, audit.Event, error) {
	p, err := a.Billing.SaveProfileTx(ctx, tx, c.Owner, party.Party(in.Body))
	if err != nil {
		return ProfileBody{}, audit.Event{}, err
	}
	out, err := a.showProfile(ctx, tx, p, c.Owner)
	return out, audit.Event{Action: "billing.profile_changed", Detail: p.Name}, err
}

func (a *API) getBudget(ctx context.Context, c account.Caller, _ *struct{}) (Money, error) {
	m, err := a.Billing.Budget(ctx, a.DB, c.Owner)
	if m.Currency == "" {
		m.Currency = a.billingCurrency(ctx, c)
	}
	return inMoney(m.Currency, m.Amount), err
}

// billingCurrency returns the currency of the account's plan, or EUR.
func (a *API) billingCurrency(ctx context.Context, c account.Caller) money.Currency {
	if s, err := a.Billing.Subscription(ctx, a.DB, c.Owner); err == nil {
		if v, err := a.Billing.Version(ctx, a.DB, s.Version); err == nil {
			return v.Currency
		}
	}
	return "EUR"
}

type budgetIn struct{ Body Money }

func (a *API) setBudget(ctx context.Context, tx *db.Tx, c account.Caller, in *budgetIn) (Money, audit.Event, error) {
	m := billing.Balance{Currency: money.Currency(in.Body.Currency), Amount: in.Body.Amount}
	err := a.Billing.SetBudgetTx(ctx, tx, c.Owner, m)
	return in.Body, audit.Event{Action: "billing.budget_changed", Detail: m.Currency.Format(m.Amount)}, err
}

func showInvoice(i billing.Invoice) InvoiceBody {
	b := InvoiceBody{
		ID: i.ID, Kind: "invoice", Number: contract.Some(i.Number), Status: string(i.Status), Net: inMoney(i.Currency, i.Net),
		Tax:   inMoney(i.Currency, i.Tax),
		Total: inMoney(i.Currency, i.Total), Remaining: inMoney(i.Currency, i.Remaining()), SubscriptionID: i.Subscription,
		Corrects: contract.Some(string(i.Corrects)), IssuedAt: contract.When(i.FinalizedAt), DueAt: contract.When(i.DueAt),
		CreatedAt: i.CreatedAt.String(),
	}
	if i.Corrects != "" {
		b.Kind = "credit_note"
	}
	return b
}

func (a *API) listInvoices(ctx context.Context, c account.Caller, in *invoicesIn) (contract.Data[InvoiceBody], error) {
	n, err := in.Limit.Parse("limit", 25)
	if err != nil {
		return contract.Data[InvoiceBody]{}, err
	}
	if in.Before != "" {
		if _, err := a.Billing.Invoice(ctx, a.DB, c.Owner, in.Before); err != nil {
			return contract.Data[InvoiceBody]{}, err
		}
	}
	list, err := a.Billing.Invoices(ctx, a.DB, c.Owner, in.Before, min(n, 100))
	return contract.Data[InvoiceBody]{Data: contract.Each(list, showInvoice)}, err
}

func (a *API) getInvoice(ctx context.Context, c account.Caller, in *invoiceIn) (out InvoiceDetails, file *contract.Reply, err error) {
	name, pdf := strings.CutSuffix(in.ID, ".pdf")
	i, err := a.Billing.Invoice(ctx, a.DB, c.Owner, billing.InvoiceID(name))
	if err != nil {
		return out, nil, err
	}
	if !pdf {
		return InvoiceDetails{showInvoice(i), contract.Each(i.Lines(), showInvoiceLine)}, nil, nil
	}
	text, err := a.Billing.PDF(ctx, i)
	if err != nil {
		return out, nil, err
	}
	return out, &contract.Reply{Status: http.StatusOK, ContentType: "application/pdf", Body: text}, nil
}

func (a *API) listPayments(ctx context.Context, c account.Caller, in *contract.PartIn) (contract.Data[PaymentBody], error) {
	list, err := a.Billing.Payments(ctx, a.DB, c.Owner, "", 100)
	return contract.Part(*in, contract.Each(list, showPayment), err)
}

func showPayment(p billing.Payment) PaymentBody {
	return PaymentBody{
		p.ID, p.Invoice, inMoney(p.Currency, p.Amount), p.Status, p.Provider, inMoney(p.Currency, p.Refunded), p.Attempt,
		contract.Some(p.FailureCode), contract.When(p.NextAttemptAt), p.CreatedAt.String(),
	}
}
