package plans

import (
	"context"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/web/api/contract"
)

// CustomerBody is an account as the operator sees it.
type CustomerBody struct {
	ID           string         `json:"id" doc:"Owner id." example:"own_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name         string         `json:"name" doc:"Email address of a user, or slug of a team." example:"ada@example.com"`
	Subscription *customersPlan `json:"subscription" doc:"Null: none."`
	Credits      []Money        `json:"credits" doc:"In lists always empty. A negative amount was too little to be charged and is added to the next invoice."`
	Deletion     *DeletionBody  `json:"deletion" doc:"Announced deletion of the account's sites. Null: none. In lists always null."`
	Seller       *string        `json:"seller" doc:"Id of the seller that the account belongs to. Null: it belongs to the installation. In lists always null." example:"harbor"`
}

type customersPlan struct {
	Plan             string `json:"plan" example:"pro"`
	Interval         string `json:"interval" enum:"month,year"`
	Status           string `json:"status" enum:"trialing,active,past_due,paused,canceled"`
	Price            Money  `json:"price"`
	CurrentPeriodEnd string `json:"currentPeriodEnd" format:"date-time"`
}

// LimitGrantBody is a limit of one account.
type LimitGrantBody struct {
	ID     string  `json:"id" example:"grn_25o5kzh3mc7yw4tn6pqd2xlfae"`
	Name   string  `json:"name" example:"sites"`
	Value  int64   `json:"value"`
	From   string  `json:"from" format:"date-time"`
	Until  *string `json:"until" format:"date-time"`
	Reason string  `json:"reason"`
}

// MarginBody is the revenue and cost of a plan's version.
type MarginBody struct {
	Plan          string  `json:"plan" example:"pro"`
	Seller        *string `json:"seller" doc:"Id of the seller whose customers have it. Null: the installation." example:"harbor"`
	Version       int64   `json:"version"`
	Interval      string  `json:"interval" enum:"month,year"`
	Subscriptions int64   `json:"subscriptions" doc:"Subscriptions that are paid for."`
	Price         Money   `json:"price" doc:"Price of a period, without tax."`
	Cost          Money   `json:"cost" doc:"Cost of a period, as published with the version."`
	Margin        Money   `json:"margin" doc:"Price less cost, of all subscriptions."`
}

// RefundBody is a refund.
type RefundBody struct {
	ID     *string `json:"id" doc:"Null for one by bank transfer."`
	Amount Money   `json:"amount"`
	Status string  `json:"status" enum:"pending,completed,failed"`
}

// ReconcileBody is the result of a comparison with the payment provider.
type ReconcileBody struct {
	Provider    string   `json:"provider" enum:"manual,stripe"`
	ReadUntil   *string  `json:"readUntil" format:"date-time" doc:"Events of the provider were read up to here."`
	ComparedAt  *string  `json:"comparedAt" format:"date-time" doc:"Time of the last comparison of payments with the ledger."`
	Differences []string `json:"differences"`
}

type customersIn struct {
	Search string         `query:"search" doc:"A part of the name."`
	After  string         `query:"after" doc:"Only customers after this name."`
	Limit  contract.Whole `query:"limit" doc:"Number of customers, at most 100. Default: 25."`
}

// CustomerIn identifies a customer.
type CustomerIn struct {
	ID string `path:"id" doc:"Owner id, user id, team id, email address of a user, or slug of a team."`
}

type customersGrantIn struct {
	ID    string `path:"id" doc:"Owner id, user id, team id, email address of a user, or slug of a team."`
	Grant string `path:"grant" doc:"The grant's id."`
}

type subscribeForIn struct {
	CustomerIn
	Body ChoiceFields
}

type cancelForIn struct {
	CustomerIn
	Now string `query:"now" enum:"true,false" doc:"End the subscription at once. Default: false, at the end of the period."`
}

type grantIn struct {
	CustomerIn
	Body struct {
		Name   string `json:"name" maxLength:"40" example:"sites"`
		Value  int64  `json:"value"`
		Until  string `json:"until,omitempty" format:"date-time" doc:"Default: no end."`
		Reason string `json:"reason" maxLength:"200"`
	}
}

type creditIn struct {
	CustomerIn
	Body struct {
		Amount   int64  `json:"amount"`
		Currency string `json:"currency" minLength:"3" maxLength:"3" example:"EUR"`
		Reason   string `json:"reason" maxLength:"200"`
	}
}

// OperatorsInvoiceIn identifies an invoice of any account.
type OperatorsInvoiceIn struct {
	ID string `path:"id" doc:"The invoice's id or number."`
}

type voidIn struct {
	OperatorsInvoiceIn
	Body struct {
		Reason string `json:"reason" maxLength:"200" doc:"Shown on the credit note."`
	}
}

type recordIn struct {
	OperatorsInvoiceIn
	Body struct {
		Amount    int64  `json:"amount" doc:"In the smallest unit of the invoice's currency."`
		Reference string `json:"reference" maxLength:"140" doc:"The bank's reference of the transfer. A reference can be recorded once."`
	}
}

type refundIn struct {
	OperatorsInvoiceIn
	Body struct {
		Amount    int64  `json:"amount,omitempty" doc:"In the smallest unit of the invoice's currency. Default: all that is left of the payment by card."`
		Reason    string `json:"reason" maxLength:"200" doc:"Shown on the credit note."`
		Reference string `json:"reference,omitempty" maxLength:"140" doc:"For a refund by bank transfer: the bank's reference. Without it the refund goes to the card."`
	}
}

// registerOperator registers the operations for operators.
func (a *API) registerOperator() {
	r := func(path, id, summary, doc, noun string) contract.Route {
		return contract.Route{
			Path: "/admin" + path, ID: id, Tag: "Billing", Summary: summary,
			Doc: "For operators of the installation. " + doc, Noun: noun, Operator: true, Person: true,
		}
	}
	made := func(x contract.Route) contract.Route { x.Status = 201; return x }
	contract.Get(a.API, r("/owners", "listCustomers", "List customers", "Accounts by name, with their subscriptions.", "customer"),
		a.listCustomers)
	contract.Get(a.API, r("/owners/{id}", "getCustomer", "Get a customer", "An account with its subscription and credit.", "customer"),
		a.getCustomer)
	contract.Post(a.API, made(r("/owners/{id}/subscription", "createCustomerSubscription", "Subscribe a customer",
		"The subscription begins without a card, and its invoices can be paid by bank transfer.", "customer")), a.subscribeFor)
	contract.Change(a.API, "PATCH", r("/owners/{id}/subscription", "updateCustomerSubscription", "Change a customer's plan",
		"As the customer would.", "customer"), a.changeFor)
	contract.Change(a.API, "DELETE", r("/owners/{id}/subscription", "cancelCustomerSubscription", "Cancel a customer's subscription",
		"At the end of the period, or at once.", "customer"), a.cancelFor)
	contract.Get(a.API, r("/owners/{id}/grants", "listLimitGrants", "List a customer's grants",
		"Limits of this account, which go ahead of its plan.", "grant"), a.listGrants)
	contract.Post(a.API, made(r("/owners/{id}/grants", "createLimitGrant", "Grant a limit",
		"A limit of this account, for some time or for good.", "grant")), a.createGrant)
	contract.Change(a.API, "DELETE", r("/owners/{id}/grants/{grant}", "deleteLimitGrant", "Delete a grant", "Takes effect at once.",
		"grant"), a.deleteGrant)
	contract.Post(a.API, made(r("/owners/{id}/credits", "createCredit", "Give credit",
		"Credit pays the account's open invoices, then the next ones.", "customer")), a.giveCredit)
	contract.Get(a.API, r("/invoices", "listReceivables", "List open invoices",
		"Open invoices of all accounts and drafts that are held, the oldest 100.", "invoice"), a.listReceivables)
	contract.Post(a.API, r("/invoices/{id}/finalize", "finalizeInvoice", "Finalize a draft", "Gives a draft that is held its number.",
		"invoice"), a.finalizeInvoice)
	contract.Post(a.API, r("/invoices/{id}/void", "voidInvoice", "Void an invoice",
		"Takes all that is left of an invoice back with a credit note. What was paid becomes credit.", "invoice"), a.voidInvoice)
	contract.Post(a.API, made(r("/invoices/{id}/payments", "recordPayment", "Record a bank transfer",
		"What exceeds the invoice becomes credit of the account.", "invoice")), a.recordPayment)
	contract.Post(a.API,
		made(r("/invoices/{id}/refunds", "refundInvoice", "Refund an invoice",
			"Takes a part of a paid invoice back with a credit note, and pays it back to the card, or records a bank transfer.", "invoice")),
		a.refundInvoice)
	contract.Get(a.API, r("/margins", "listMargins", "List margins",
		"Price and cost of the plan versions that have subscribers, by seller.", "plan"), a.listMargins)
	a.registerSellers(r)
	contract.Get(a.API, r("/reconcile", "getReconciliation", "Get the reconciliation",
		"Result of the last comparison of payments with the payment provider.", "comparison"), a.getReconciliation)
}

func showCustomer(c billing.Customer) CustomerBody {
	out := CustomerBody{ID: string(c.Owner), Name: c.Name, Credits: []Money{}}
	if c.Plan != "" {
		out.Subscription = &customersPlan{
			c.Plan, string(c.Term), string(c.Status), inMoney(c.Price.Currency, c.Price.Amount),
			c.PeriodEnd.String(),
		}
	}
	return out
}

func (a *API) listCustomers(ctx context.Context, _ account.Caller, in *customersIn) (out contract.Data[CustomerBody], err error) {
	n, err := in.Limit.Parse("limit", 25)
	if err != nil {
		return out, err
	}
	list, err := a.Billing.Customers(ctx, a.DB, in.Search, in.After, min(n, 100))
	return contract.Data[CustomerBody]{Data: contract.Each(list, showCustomer)}, err
}

func (a *API) getCustomer(ctx context.Context, _ account.Caller, in *CustomerIn) (CustomerBody, error) {
	return a.customer(ctx, a.DB, in.ID)
}

func (a *API) customer(ctx context.Context, r db.Reader, name string) (out CustomerBody, err error) {
	c, err := a.Billing.Customer(ctx, r, name)
	if err != nil {
		return out, err
	}
	out = showCustomer(c)
	if out.Deletion, err = a.deletion(ctx, r, c.Owner); err != nil {
		return out, err
	}
	who, err := party.SellerOf(ctx, r, c.Owner)
	out.Seller = contract.Some(who)
	if err != nil {
		return out, err
	}
	credits, err := a.Billing.Credits(ctx, r, c.Owner)
	out.Credits = contract.Each(credits, func(b billing.Balance) Money { return inMoney(b.Currency, b.Amount) })
	return out, err
}

func (a *API) subscribeFor(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *subscribeForIn,
) (out SubscriptionBody, did audit.Event, err error) {
	do := in.Body.action(billing.Subscribe)
	do.Invoiced = true
	return a.actFor(ctx, tx, in.ID, do, in.Body.Digest, "subscription.created")
}

func (a *API) changeFor(ctx context.Context, tx *db.Tx, _ account.Caller, in *subscribeForIn) (SubscriptionBody, audit.Event, error) {
	return a.actFor(ctx, tx, in.ID, in.Body.action(billing.Change), in.Body.Digest, "subscription.changed")
}

func (a *API) actFor(
	ctx context.Context, tx *db.Tx, customer string, do billing.Action, digest, did string,
) (out SubscriptionBody, _ audit.Event, err error) {
	c, err := a.Billing.Customer(ctx, tx, customer)
	if err != nil {
		return out, audit.Event{}, err
	}
	s, _, err := a.Billing.DoTx(ctx, tx, c.Owner, do, digest)
	if err != nil {
		return out, audit.Event{}, err
	}
	out, err = a.showSubscription(ctx, tx, s)
	return out, audit.Event{Action: did, Subject: string(out.ID), Detail: c.Name + ": " + out.Plan}, err
}

func (a *API) cancelFor(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *cancelForIn,
) (out SubscriptionBody, did audit.Event, err error) {
	if err := contract.OneOf("now", in.Now, "true", "false"); err != nil {
		return out, did, err
	}
	c, err := a.Billing.Customer(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	s, err := a.Billing.EndTx(ctx, tx, c.Owner, in.Now == "true")
	if err != nil {
		return out, did, err
	}
	out, err = a.showSubscription(ctx, tx, s)
	return out, audit.Event{Action: "subscription.canceled", Subject: string(out.ID), Detail: c.Name}, err
}

func showGrant(g plan.Grant) LimitGrantBody {
	return LimitGrantBody{g.ID, string(g.Name), g.Value, g.From.String(), contract.When(g.Until), g.Reason}
}

func (a *API) listGrants(ctx context.Context, _ account.Caller, in *CustomerIn) (out contract.Data[LimitGrantBody], err error) {
	c, err := a.Billing.Customer(ctx, a.DB, in.ID)
	if err != nil {
		return out, err
	}
	list, err := a.Billing.Grants(ctx, a.DB, c.Owner)
	return contract.Data[LimitGrantBody]{Data: contract.Each(list, showGrant)}, err
}

func (a *API) createGrant(ctx context.Context, tx *db.Tx, _ account.Caller, in *grantIn) (out LimitGrantBody, did audit.Event, err error) {
	c, err := a.Billing.Customer(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	g := plan.Grant{Name: limits.Name(in.Body.Name), Value: in.Body.Value, Reason: in.Body.Reason}
	if in.Body.Until != "" {
		at, err := time.Parse(time.RFC3339, in.Body.Until)
		if err != nil {
			return out, did, fault.New(fault.Invalid, "invalid_until", "Invalid until",
				"until must be a time such as 2027-01-31T09:00:00Z").Got(in.Body.Until)
		}
		g.Until = db.At(at)
	}
	g, err = a.Billing.GrantTx(ctx, tx, c.Owner, g)
	return showGrant(g), audit.Event{Action: "billing.granted", Subject: g.ID, Detail: c.Name + ": " + in.Body.Name}, err
}

func (a *API) deleteGrant(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *customersGrantIn,
) (out contract.Message, did audit.Event, err error) {
	c, err := a.Billing.Customer(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	return contract.Message{Message: "Grant deleted"}, audit.Event{Action: "billing.grant_deleted", Subject: in.Grant, Detail: c.Name},
		a.Billing.RevokeTx(ctx, tx, c.Owner, in.Grant)
}

func (a *API) giveCredit(ctx context.Context, tx *db.Tx, _ account.Caller, in *creditIn) (out Money, did audit.Event, err error) {
	c, err := a.Billing.Customer(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	m := billing.Balance{Currency: money.Currency(in.Body.Currency), Amount: in.Body.Amount}
	if err := a.Billing.GiveCreditTx(ctx, tx, c.Owner, m, in.Body.Reason); err != nil {
		return out, did, err
	}
	return inMoney(m.Currency, m.Amount), audit.Event{Action: "billing.credited", Detail: c.Name + ": " +
		m.Currency.Format(m.Amount) + ", " + in.Body.Reason}, nil
}

func (a *API) listReceivables(ctx context.Context, _ account.Caller, in *contract.PartIn) (contract.Data[InvoiceBody], error) {
	list, err := a.Billing.Receivables(ctx, a.DB, 100)
	return contract.Part(*in, contract.Each(list, showInvoice), err)
}

func (a *API) finalizeInvoice(
	ctx context.Context, tx *db.Tx, _ account.Caller, in *OperatorsInvoiceIn,
) (out InvoiceBody, did audit.Event, err error) {
	if err := a.Billing.FinalizeTx(ctx, tx, in.ID); err != nil {
		return out, did, err
	}
	i, err := a.Billing.InvoiceOf(ctx, tx, in.ID)
	return showInvoice(i), audit.Event{Action: "invoice.finalized", Subject: string(i.ID), Detail: i.Number}, err
}

func (a *API) voidInvoice(ctx context.Context, tx *db.Tx, _ account.Caller, in *voidIn) (out InvoiceBody, did audit.Event, err error) {
	note, err := a.Billing.CreditNoteTx(ctx, tx, billing.InvoiceID(in.ID), 0, in.Body.Reason)
	return showInvoice(note), audit.Event{Action: "invoice.credited", Subject: string(note.ID), Detail: note.Number}, err
}

func (a *API) recordPayment(ctx context.Context, tx *db.Tx, _ account.Caller, in *recordIn) (out PaymentBody, did audit.Event, err error) {
	p, err := a.Billing.RecordTx(ctx, tx, in.ID, billing.Received{Amount: in.Body.Amount, Reference: in.Body.Reference})
	return showPayment(p), audit.Event{Action: "payment.recorded", Subject: string(p.ID), Detail: p.Currency.Format(p.Amount)}, err
}

func (a *API) refundInvoice(ctx context.Context, tx *db.Tx, _ account.Caller, in *refundIn) (out RefundBody, did audit.Event, err error) {
	if in.Body.Reference == "" {
		x, err := a.Billing.RefundInvoiceTx(ctx, tx, in.ID, in.Body.Amount, in.Body.Reason)
		return RefundBody{contract.Some(x.ID), inMoney(x.Currency, x.Amount), x.Status}, audit.Event{
			Action:  "payment.refunded",
			Subject: x.ID, Detail: x.Currency.Format(x.Amount),
		}, err
	}
	i, err := a.Billing.InvoiceOf(ctx, tx, in.ID)
	if err != nil {
		return out, did, err
	}
	if i.Status != billing.Paid {
		return out, did, fault.New(fault.Conflict, "invoice_not_paid", "The invoice isn't paid", "void it instead")
	}
	note, err := a.Billing.CreditNoteTx(ctx, tx, billing.InvoiceID(in.ID), in.Body.Amount, in.Body.Reason)
	if err != nil {
		return out, did, err
	}
	m := billing.Balance{Currency: i.Currency, Amount: -note.Total}
	err = a.Billing.RefundTx(ctx, tx, i.Owner, m, in.Body.Reference)
	return RefundBody{nil, inMoney(m.Currency, m.Amount), "completed"}, audit.Event{
		Action:  "payment.refunded",
		Subject: string(i.ID), Detail: m.Currency.Format(m.Amount),
	}, err
}

func (a *API) listMargins(ctx context.Context, _ account.Caller, in *contract.PartIn) (out contract.Data[MarginBody], err error) {
	list, err := a.Billing.Margins(ctx, a.DB)
	if err != nil {
		return out, err
	}
	var rows []MarginBody
	for _, m := range list {
		total, err := m.Total()
		if err != nil {
			return out, err
		}
		rows = append(rows, MarginBody{
			m.Plan, contract.Some(m.Seller), m.Version, string(m.Term), m.Subscriptions, inMoney(m.Currency, m.Price),
			inMoney(m.Currency, m.Cost), inMoney(m.Currency, total),
		})
	}
	return contract.Part(*in, rows, nil)
}

func (a *API) getReconciliation(ctx context.Context, _ account.Caller, _ *struct{}) (ReconcileBody, error) {
	out := ReconcileBody{Provider: billing.Manual, Differences: []string{}}
	if a.Stripe == nil {
		return out, nil
	}
	s, err := a.Stripe.Account(ctx, a.DB)
	if fault.Is(err, fault.NotFound) {
		return out, nil
	}
	return ReconcileBody{"stripe", contract.When(s.ReadUntil), contract.When(s.ComparedAt), append(out.Differences, s.Differences...)}, err
}
