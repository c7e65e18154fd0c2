// Package plans owns the pages of an account's plan and invoices. They exist if billing is on.
package plans

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"slipway/internal/backup/retention"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/billing"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/billing/seller"
	"slipway/internal/tenant/money"
	"slipway/internal/web/dashboard/shell"
)

// Pages serves the pages of an account's plan and invoices.
type Pages struct {
	*shell.Shell
	billing *billing.Billing
	hosts   *seller.Hosts
}

// New returns the pages, which have no routes if b is nil.
func New(s *shell.Shell, b *billing.Billing, h *seller.Hosts) *Pages { return &Pages{s, b, h} }

func (d *Pages) Routes() []shell.Route {
	if d.billing == nil {
		return nil
	}
	read := func(path string, do func(ctx context.Context, q *shell.Request) (shell.Answer, error)) shell.Route {
		return shell.Get(path, shell.User, do).Takes(account.BillingRead).Wide()
	}
	write := func(path string, do func(ctx context.Context, q *shell.Request) (shell.Answer, error)) shell.Route {
		return shell.Post(path, shell.User, do, d.planPage).Takes(account.BillingWrite).Wide()
	}
	return []shell.Route{
		read("/account/plan", d.planPage),
		write("/account/plan", d.choose),
		write("/account/plan/profile", d.saveProfile),
		write("/account/plan/budget", d.saveBudget),
		write("/account/plan/cancel", d.cancel),
		write("/account/plan/resume", d.resume),
		write("/account/plan/card", d.addCard),
		write("/account/plan/card/delete", d.deleteCard),
		read("/account/invoices", d.invoicesPage),
		read("/account/invoices/{invoice}", d.invoicePage),
		read("/account/invoices/{invoice}/pdf", d.invoicePDF),
		shell.Post("/account/invoices/{invoice}/pay", shell.User, d.pay, d.invoicePage).Takes(account.BillingWrite).Wide(),
		shell.Get("/operator/customers", shell.Operator, d.customersPage),
		shell.Get("/operator/customers/{customer}", shell.Operator, d.customerPage),
		shell.Post("/operator/customers/{customer}/plan", shell.Operator, d.subscribeFor, d.customerPage),
		shell.Post("/operator/customers/{customer}/cancel", shell.Operator, d.cancelFor, d.customerPage),
		shell.Post("/operator/customers/{customer}/credit", shell.Operator, d.giveCredit, d.customerPage),
		shell.Post("/operator/customers/{customer}/grants", shell.Operator, d.grant, d.customerPage),
		shell.Post("/operator/customers/{customer}/grants/{grant}/delete", shell.Operator, d.revoke, d.customerPage),
		shell.Get("/operator/customers/{customer}/invoices/{invoice}/pdf", shell.Operator, d.customersPDF),
		shell.Post("/operator/customers/{customer}/seller", shell.Operator, d.assign, d.customerPage),
		shell.Get("/operator/sellers", shell.Operator, d.sellersPage),
		shell.Post("/operator/sellers/host", shell.Operator, d.setHost, d.sellersPage),
		shell.Get("/brand/{logo}", shell.Open, d.logo),
		shell.Get("/operator/margins", shell.Operator, d.marginsPage),
		shell.Get("/operator/receivables", shell.Operator, d.receivablesPage),
		shell.Post("/operator/receivables", shell.Operator, d.record, d.receivablesPage),
		shell.Post("/operator/receivables/{invoice}/finalize", shell.Operator, d.release, d.receivablesPage),
	}
}

type planData struct {
	Now      *current // nil: no subscription
	Offers   []offer
	Credit   []string
	Carried  []string // amounts carried to the next invoice
	Budget   string   // decimal number; empty: none
	Currency string   // of the budget
	Profile  party.Profile
	Cards    bool   // whether cards are accepted
	Card     string // stored card in words; empty: none
	Declined bool
	Notice   string // result of a visit to the page that stores a card
	Failed   bool
	Deletion string // deletion date of the account's sites; empty: never
}

// current is the subscription as displayed.
type current struct {
	Title, Price, Status, Tone, Words string
	Canceled                          bool
	Next                              string // plan from the next period on
}

// offer is an available plan with its price.
type offer struct {
	Plan, Title, Price, Interval, Currency string
	Current                                bool
	Problem                                string // why it can't be chosen
	Digest, Words                          string
	Exceeds                                []string
}

var intervals = map[plan.Term]string{plan.Month: "month", plan.Year: "year"}

func date(t db.Time) string { return t.Time().UTC().Format(time.DateOnly) }

func price(c money.Currency, n int64, t plan.Term) string {
	return c.Format(n) + " per " + intervals[t]
}

func (d *Pages) planPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	var s billing.Setup
	if id := q.URL.Query().Get("setup"); id != "" && q.Method == http.MethodGet {
		var err error
		if s, err = d.billing.LookAtSetup(ctx, q.Caller.Owner, id); err != nil {
			return shell.Answer{}, err
		}
		if to, err := d.toConfirm(ctx, q); err != nil || to != "" {
			return shell.Onward(shell.OnwardData{To: to}), err
		}
	}
	data, err := d.plan(ctx, q)
	switch {
	case s.Problem != "":
		data.Notice, data.Failed = "The card is saved, but the subscription did not start: "+s.Problem+".", true
	case s.Status == "completed":
		data.Notice = "Card saved."
	case s.Status == "open":
		data.Notice, data.Failed = "No card was saved.", true
	case s.Status == "expired":
		data.Notice, data.Failed = "The page has expired. No card was saved.", true
	}
	return shell.Page("account_plan", "Plan", data), err
}

// deletion returns the announced deletion date of an owing account's sites, or "".
func (d *Pages) deletion(ctx context.Context, owner account.OwnerID) (string, error) {
	p, on, err := retention.Of(ctx, d.DB, owner)
	if err != nil || !on {
		return "", err
	}
	return date(p.DeleteAt), nil
}

func (d *Pages) plan(ctx context.Context, q *shell.Request) (data planData, err error) {
	owner := q.Caller.Owner
	s, err := d.billing.Subscription(ctx, d.DB, owner)
	has := err == nil
	if err != nil && !fault.Is(err, fault.NotFound) {
		return data, err
	}
	if has {
		if data.Now, err = d.current(ctx, s); err != nil {
			return data, err
		}
	}
	if data.Deletion, err = d.deletion(ctx, owner); err != nil {
		return data, err
	}
	offers, err := d.billing.OffersTo(ctx, d.DB, owner)
	if err != nil {
		return data, err
	}
	for _, v := range offers {
		o := offer{
			Plan: v.Plan, Title: v.Title, Price: price(v.Currency, v.Amount, v.Term), Interval: string(v.Term), Currency: string(v.Currency),
			Current: has && s.Version == v.ID,
		}
		do := billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{Plan: v.Plan, Term: v.Term, Currency: v.Currency}}
		if has {
			do.Kind = billing.Change
		}
		preview, err := d.billing.Preview(ctx, d.DB, owner, do)
		if f := fault.As(err); f != nil {
			o.Problem = f.Message
			if o.Current {
				o.Problem = ""
			}
		} else if err != nil {
			return data, err
		} else {
			o.Digest, o.Words = preview.Digest(), words(preview, has)
			for _, u := range preview.Exceeds {
				o.Exceeds = append(o.Exceeds, u.Name.Title()+": "+u.Amount()+" of "+u.Most())
			}
		}
		data.Offers = append(data.Offers, o)
	}
	credits, err := d.billing.Credits(ctx, d.DB, owner)
	if err != nil {
		return data, err
	}
	for _, c := range credits {
		if c.Amount < 0 {
			data.Carried = append(data.Carried, c.Currency.Format(-c.Amount))
		} else {
			data.Credit = append(data.Credit, c.Currency.Format(c.Amount))
		}
	}
	budget, err := d.billing.Budget(ctx, d.DB, owner)
	if err != nil {
		return data, err
	}
	data.Currency = string(d.currency(ctx, q))
	if budget.Amount > 0 {
		data.Budget, data.Currency = budget.Currency.Decimal(budget.Amount), string(budget.Currency)
	}
	if data.Cards, err = d.billing.Cards(ctx, d.DB); err != nil {
		return data, err
	}
	if data.Cards {
		k, err := d.billing.Card(ctx, d.DB, owner, d.currency(ctx, q))
		if err != nil {
			return data, err
		}
		data.Card, data.Declined = cardWords(k), k.Declined != ""
	}
	data.Profile, err = d.billing.Profile(ctx, d.DB, owner)
	return data, err
}

// cardWords describes a card, or returns "" if there is none.
func cardWords(k billing.Card) string {
	if k.Method == "" || k.Last4 == "" {
		return k.Brand
	}
	brand := strings.ToUpper(k.Brand[:min(1, len(k.Brand))]) + k.Brand[min(1, len(k.Brand)):]
	return fmt.Sprintf("%s ending in %s, expires %02d/%d", brand, k.Last4, k.ExpMonth, k.ExpYear)
}

// toConfirm returns the bank's page for a payment that needs confirmation.
func (d *Pages) toConfirm(ctx context.Context, q *shell.Request) (string, error) {
	list, err := d.billing.Payments(ctx, d.DB, q.Caller.Owner, "", 10)
	for _, p := range list {
		if p.Status == billing.PaymentRequiresAction {
			return d.billing.PayNow(ctx, q.Caller.Owner, p.Invoice, d.back(q, "/account/invoices/"+string(p.Invoice)))
		}
	}
	return "", err
}

// back returns the URL to which the payment provider redirects.
func (d *Pages) back(q *shell.Request, path string) string {
	return d.Base(q) + account.PageOf(q.Caller.Slug, path)
}

// addCard redirects to the page that stores a card.
func (d *Pages) addCard(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	to, err := d.billing.BeginSetup(ctx, q.Caller.Owner, d.currency(ctx, q), nil, "", d.back(q, "/account/plan"))
	return shell.Onward(shell.OnwardData{To: to}), err
}

func (d *Pages) deleteCard(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "billing.card_deleted"}, d.billing.RemoveCardTx(ctx, tx, q.Caller.Owner, d.currency(ctx, q))
	})
	return shell.GoTo("/account/plan", "Card deleted"), err
}

// pay redirects to the page that pays an invoice.
func (d *Pages) pay(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := q.PathValue("invoice")
	to, err := d.billing.PayNow(ctx, q.Caller.Owner, billing.InvoiceID(id), d.back(q, "/account/invoices/"+id))
	return shell.Onward(shell.OnwardData{To: to}), err
}

// words describes the effect and price of choosing a plan.
func words(q billing.Quote, change bool) string {
	switch {
	case q.DueNow > 0 || q.Total > 0:
		text := q.Currency.Format(q.DueNow) + " due now"
		if q.Tax > 0 {
			text += ", " + q.Currency.Format(q.Tax) + " of it tax"
		}
		return text + ". Next period on " + date(q.NextAt) + "."
	case change && q.At == q.NextAt && q.NextAt > 0:
		return "Takes effect on " + date(q.At) + ". Nothing is due now."
	case q.NextAt > 0:
		return "Nothing is due now. The first period begins on " + date(q.NextAt) + "."
	}
	return "Takes effect now. Nothing is due."
}

func (d *Pages) current(ctx context.Context, s billing.Subscription) (*current, error) {
	v, err := d.billing.Version(ctx, d.DB, s.Version)
	if err != nil {
		return nil, err
	}
	c := &current{Title: v.Title, Price: price(v.Currency, v.Amount, v.Term), Canceled: s.Status == billing.Canceled}
	switch s.Status {
	case billing.Trialing:
		c.Status, c.Tone, c.Words = "Trial", "ok", "The trial ends on "+date(s.End)+", and the first period begins."
	case billing.Active:
		c.Status, c.Tone, c.Words = "Active", "ok", "Renewed on "+date(s.End)+"."
	case billing.PastDue:
		c.Status, c.Tone, c.Words = "Past due", "bad", "An invoice is overdue. Pay it, or your sites will be paused."
	case billing.Paused:
		c.Status, c.Tone, c.Words = "Paused", "bad",
			"An invoice is unpaid, so your sites are paused. They are back as soon as it is paid. Nothing was deleted."
	case billing.Canceled:
		c.Status, c.Tone, c.Words = "Canceled", "", "Ends on "+date(s.End)+"."
	}
	if s.Next != "" {
		next, err := d.billing.Version(ctx, d.DB, s.Next)
		if err != nil {
			return nil, err
		}
		c.Next = next.Title
	}
	return c, nil
}

// act performs an action and writes the audit log.
func (d *Pages) act(ctx context.Context, q *shell.Request, name string, fn func(tx *db.Tx) (billing.Subscription, error)) error {
	return d.Act(ctx, q, name, func(tx *db.Tx) (string, error) {
		s, err := fn(tx)
		return string(s.ID), err
	})
}

func (d *Pages) choose(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	do := billing.Action{Kind: billing.Subscribe, Choice: plan.Choice{
		Plan: q.Value("plan"), Term: plan.Term(q.Value("interval")), Currency: money.Currency(q.Value("currency")),
	}}
	name := "subscription.created"
	if _, err := d.billing.Subscription(ctx, d.DB, q.Caller.Owner); err == nil {
		do.Kind, name = billing.Change, "subscription.changed"
	} else {
		preview, err := d.billing.Preview(ctx, d.DB, q.Caller.Owner, do)
		if err != nil {
			return shell.Answer{}, err
		}
		v, err := d.billing.Version(ctx, d.DB, preview.Version)
		if err != nil {
			return shell.Answer{}, err
		}
		if need, err := d.billing.NeedsCard(ctx, d.DB, q.Caller.Owner, do, v); err != nil {
			return shell.Answer{}, err
		} else if need { // the subscription begins once a card is stored
			to, err := d.billing.BeginSetup(ctx, q.Caller.Owner, v.Currency, &do, q.Value("digest"), d.back(q, "/account/plan"))
			return shell.Onward(shell.OnwardData{To: to}), err
		}
	}
	err := d.act(ctx, q, name, func(tx *db.Tx) (s billing.Subscription, err error) {
		s, _, err = d.billing.DoTx(ctx, tx, q.Caller.Owner, do, q.Value("digest"))
		return s, err
	})
	return shell.GoTo("/account/plan", "Plan changed"), err
}

func (d *Pages) cancel(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.act(ctx, q, "subscription.canceled", func(tx *db.Tx) (s billing.Subscription, err error) {
		s, _, err = d.billing.DoTx(ctx, tx, q.Caller.Owner, billing.Action{Kind: billing.Cancel}, "")
		return s, err
	})
	return shell.GoTo("/account/plan", "Subscription canceled"), err
}

func (d *Pages) resume(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	err := d.act(ctx, q, "subscription.resumed", func(tx *db.Tx) (billing.Subscription, error) {
		return d.billing.ResumeTx(ctx, tx, q.Caller.Owner)
	})
	return shell.GoTo("/account/plan", "Subscription resumed"), err
}

func (d *Pages) saveProfile(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	p := party.Party{
		Name: q.Value("name"), Address: strings.ReplaceAll(q.Value("address"), "\r\n", "\n"), Country: strings.ToUpper(q.Value("country")),
		VATID: strings.ToUpper(strings.ReplaceAll(q.Value("vatId"), " ", "")), Email: q.Value("email"),
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.billing.SaveProfileTx(ctx, tx, q.Caller.Owner, p)
		return audit.Event{Action: "billing.profile_changed", Detail: p.Name}, err
	})
	return shell.GoTo("/account/plan", "Billing profile saved"), err
}

// currency returns the currency of the account's plan, or of the offered plans.
func (d *Pages) currency(ctx context.Context, q *shell.Request) money.Currency {
	if s, err := d.billing.Subscription(ctx, d.DB, q.Caller.Owner); err == nil {
		if v, err := d.billing.Version(ctx, d.DB, s.Version); err == nil {
			return v.Currency
		}
	}
	if offers, err := d.billing.OffersTo(ctx, d.DB, q.Caller.Owner); err == nil && len(offers) > 0 {
		return offers[0].Currency
	}
	return "EUR"
}

func (d *Pages) saveBudget(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	m := billing.Balance{Currency: d.currency(ctx, q)}
	if text := q.Value("budget"); text != "" {
		n, err := m.Currency.ParseDecimal(text)
		if err != nil {
			return shell.Answer{}, shell.At("budget", &fault.Error{Kind: fault.Invalid, Message: "Invalid budget", Details: err.Error()})
		}
		m.Amount = n
	}
	err := d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return audit.Event{Action: "billing.budget_changed", Detail: m.Currency.Format(m.Amount)},
			d.billing.SetBudgetTx(ctx, tx, q.Caller.Owner, m)
	})
	return shell.GoTo("/account/plan", "Budget saved"), err
}

// invoiceRow is an invoice as displayed.
type invoiceRow struct {
	ID                                     billing.InvoiceID
	Number, Date, Total, Status, Tone, Due string
	Final                                  bool
}

// mostInvoices caps the invoices listed.
const mostInvoices = 100

func rowOf(i billing.Invoice) invoiceRow {
	r := invoiceRow{
		ID: i.ID, Number: i.Number, Date: date(i.CreatedAt), Total: i.Currency.Format(i.Total), Final: i.Number != "",
	}
	switch {
	case i.Corrects != "":
		r.Status = "Credit note"
	case i.Overdue(db.Now()):
		r.Status, r.Tone = "Overdue", "bad"
	case i.Status == billing.Open:
		r.Status = "Open"
	case i.Status == billing.Paid:
		r.Status, r.Tone = "Paid", "ok"
	case i.Status == billing.Draft:
		r.Status = "Draft"
	case i.Status == billing.Void:
		r.Status = "Void"
	default:
		r.Status = "Closed"
	}
	if left := i.Remaining(); left > 0 {
		r.Due = i.Currency.Format(left) + " due on " + date(i.DueAt)
	}
	if r.Final {
		r.Date = date(i.FinalizedAt)
	}
	return r
}

func (d *Pages) invoicesPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	list, err := d.billing.Invoices(ctx, d.DB, q.Caller.Owner, "", mostInvoices)
	var rows []invoiceRow
	for _, i := range list {
		rows = append(rows, rowOf(i))
	}
	if err != nil {
		return shell.Answer{}, err
	}
	deletion, err := d.deletion(ctx, q.Caller.Owner)
	return shell.Page("account_invoices", "Invoices", struct {
		Invoices []invoiceRow
		Deletion string
	}{rows, deletion}), err
}

type invoiceData struct {
	invoiceRow
	Pay      bool   // whether it can be paid by card
	Charged  string // card that will be charged, in words
	Notice   string // result of a payment
	Failed   bool
	Lines    []lineRow
	Net, Tax string
	Payments []paymentRow
	Transfer string // the seller's instructions for bank transfers; empty: nothing to pay
}

type (
	lineRow    struct{ Text, Amount string }
	paymentRow struct{ Date, Amount, Status string }
)

func (d *Pages) invoice(ctx context.Context, q *shell.Request) (billing.Invoice, error) {
	return d.billing.Invoice(ctx, d.DB, q.Caller.Owner, shell.PathID[billing.InvoiceID](q, "invoice"))
}

func (d *Pages) invoicePage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	i, err := d.invoice(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var looked billing.Payment
	if id := q.URL.Query().Get("payment"); id != "" && q.Method == http.MethodGet {
		if looked, err = d.billing.LookAtPayment(ctx, q.Caller.Owner, billing.PaymentID(id)); err != nil {
			return shell.Answer{}, err
		}
		if i, err = d.invoice(ctx, q); err != nil {
			return shell.Answer{}, err
		}
	}
	data := invoiceData{invoiceRow: rowOf(i), Net: i.Currency.Format(i.Net), Tax: i.Currency.Format(i.Tax)}
	for _, l := range i.Lines() {
		data.Lines = append(data.Lines, lineRow{l.Text, i.Currency.Format(l.Amount)})
	}
	if i.Remaining() > 0 {
		data.Transfer = i.Document().Payment
	}
	payments, err := d.billing.Payments(ctx, d.DB, q.Caller.Owner, i.ID, 100)
	for _, p := range payments {
		data.Payments = append(data.Payments, paymentRow{date(p.CreatedAt), p.Currency.Format(p.Amount), paymentWords(p)})
	}
	if err == nil {
		err = d.payable(ctx, q, i, payments, &data)
	}
	switch looked.Status {
	case "completed":
		data.Notice = "Payment completed. Thank you."
	case "failed":
		data.Notice, data.Failed = "The payment failed: "+billing.Declined(looked.FailureCode)+".", true
	case billing.PaymentProcessing, billing.PaymentUnknown:
		data.Notice = "The payment is being processed."
	}
	title := "Invoice " + i.Number
	if i.Corrects != "" {
		title = "Credit note " + i.Number
	} else if i.Number == "" {
		title = "Draft invoice"
	}
	return shell.Page("account_invoice", title, data), err
}

// paymentWords describes the state of a payment.
func paymentWords(p billing.Payment) string {
	switch p.Status {
	case "completed":
		if p.Refunded > 0 {
			return "Received, " + p.Currency.Format(p.Refunded) + " refunded"
		}
		return "Received"
	case "failed":
		return "Failed: " + billing.Declined(p.FailureCode)
	case billing.PaymentRequiresAction:
		return "Waiting for you"
	}
	return "Processing"
}

// payable sets how an open invoice can be paid.
func (d *Pages) payable(ctx context.Context, q *shell.Request, i billing.Invoice, payments []billing.Payment, data *invoiceData) error {
	on, err := d.billing.Cards(ctx, d.DB)
	if err != nil || !on || i.Remaining() <= 0 {
		return err
	}
	k, err := d.billing.Card(ctx, d.DB, q.Caller.Owner, i.Currency)
	data.Pay = true
	if k.Usable() {
		data.Charged = cardWords(k)
	}
	for _, p := range payments {
		if p.Open() && p.Status != billing.PaymentRequiresAction {
			data.Pay = false
		}
	}
	return err
}

func (d *Pages) invoicePDF(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	i, err := d.invoice(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	return d.pdf(ctx, i)
}

func (d *Pages) pdf(ctx context.Context, i billing.Invoice) (shell.Answer, error) {
	text, err := d.billing.PDF(ctx, i)
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.Raw(func(w http.ResponseWriter) {
		h := w.Header()
		h.Set("Content-Type", "application/pdf")
		h.Set("Content-Length", strconv.Itoa(len(text)))
		h.Set("Content-Disposition", `attachment; filename="`+i.Number+`.pdf"`)
		_, _ = w.Write(text)
	}), nil
}
