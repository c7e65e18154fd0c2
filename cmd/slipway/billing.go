//go:build linux

package main

import (
	"context"
	"io"
	"os"
	"time"

	"slipway/internal/operator/admin"
	"slipway/internal/operator/flags"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

type billingCommand struct {
	Publish     billingPublish     `cmd:"" help:"Publish a plan, or a new version of one, from a JSON file."`
	Plans       billingPlans       `cmd:"" help:"List all versions of all plans."`
	Seller      billingSeller      `cmd:"" help:"Add a seller who resells under a name of their own, or change one, from a JSON file."`
	Settings    billingSettings    `cmd:"" help:"Replace the seller's settings from a JSON file: address, taxes, payment terms."`
	Receivables billingReceivables `cmd:"" help:"List open invoices and drafts that are held."`
	Pay         billingPay         `cmd:"" help:"Record a bank transfer for an invoice."`
	CreditNote  billingCreditNote  `cmd:"" name:"credit-note" help:"Issue a credit note for an invoice, or for a part of it."`
	Finalize    billingFinalize    `cmd:"" help:"Finalize a draft that is held."`
	WriteOff    billingWriteOff    `cmd:"" name:"write-off" help:"Write off what is left to pay of an invoice."`
	Credit      billingCredit      `cmd:"" help:"Give a customer credit, which pays their next invoices."`
	Refund      billingRefund      `cmd:"" help:"Record that a customer's credit was paid out."`
	Coupon      billingCoupon      `cmd:"" help:"Make a coupon, worth a percentage or an amount of a period's price."`
	Grant       billingGrant       `cmd:"" help:"Give a customer a limit of their own."`
	VAT         billingVAT         `cmd:"" name:"vat" help:"Show what is known of a customer's VAT number, or record whether it is valid."`
	Recompute   billingRecompute   `cmd:"" help:"Compute invoices again and compare them with what is stored, byte by byte."`
	Check       billingCheck       `cmd:"" help:"Check the ledger: sums, numbers, payments."`
	Stripe      billingStripe      `cmd:"" help:"Accept cards through Stripe."`
}

func sells(d flags.Data) admin.Billing { return admin.Billing{Store: d.Store(), Out: stdout} }

// withFile opens a file, or standard input for "-".
func withFile(name string, fn func(r io.Reader) error) error {
	if name == "-" {
		return fn(os.Stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return fn(f)
}

type billingPublish struct {
	flags.Data
	File   string `arg:"" help:"JSON file, or - for standard input."`
	Seller string `help:"Id of the seller who offers the plan. Default: the installation." placeholder:"ID"`
}

// Run publishes the version, also while the server runs.
func (c billingPublish) Run(ctx context.Context) error {
	return withFile(c.File, func(r io.Reader) error { return sells(c.Data).Publish(ctx, r, c.Seller) })
}

type billingPlans struct{ flags.Data }

// Run lists the versions.
func (c billingPlans) Run(ctx context.Context) error { return sells(c.Data).Plans(ctx) }

type billingSeller struct {
	flags.Data
	ID   string `arg:"" help:"Short name of the seller, such as harbor."`
	File string `arg:"" help:"JSON file, or - for standard input."`
	Logo string `help:"PNG or JPEG file, at most 512 by 512 pixels and 256 KiB. Default: the logo stays as it is." type:"path" placeholder:"FILE"`
}

// Run adds or changes the seller, also while the server runs.
func (c billingSeller) Run(ctx context.Context) error {
	return withFile(c.File, func(r io.Reader) error {
		if c.Logo == "" {
			return sells(c.Data).Seller(ctx, c.ID, r, nil)
		}
		return withFile(c.Logo, func(logo io.Reader) error { return sells(c.Data).Seller(ctx, c.ID, r, logo) })
	})
}

type billingSettings struct {
	flags.Data
	File string `arg:"" help:"JSON file, or - for standard input."`
}

// Run replaces the settings, also while the server runs.
func (c billingSettings) Run(ctx context.Context) error {
	return withFile(c.File, func(r io.Reader) error { return sells(c.Data).Settings(ctx, r) })
}

type billingReceivables struct{ flags.Data }

// Run lists unpaid invoices.
func (c billingReceivables) Run(ctx context.Context) error { return sells(c.Data).Receivables(ctx) }

type billingPay struct {
	flags.Data
	Invoice   string `arg:"" help:"Number or id of the invoice."`
	Amount    string `arg:"" help:"Amount in the invoice's currency, such as 19.00."`
	Reference string `help:"The bank's reference of the transfer. No two transfers have the same." required:"" placeholder:"TEXT"`
}

// Run records the transfer.
func (c billingPay) Run(ctx context.Context) error {
	return sells(c.Data).Pay(ctx, c.Invoice, c.Amount, c.Reference)
}

type billingCreditNote struct {
	flags.Data
	Invoice string `arg:"" help:"Number or id of the invoice."`
	Amount  string `help:"Amount with tax, such as 19.00. Default: what is left of the invoice." placeholder:"AMOUNT"`
	Reason  string `help:"Reason shown on the credit note." required:"" placeholder:"TEXT"`
}

// Run issues the credit note.
func (c billingCreditNote) Run(ctx context.Context) error {
	return sells(c.Data).CreditNote(ctx, c.Invoice, c.Amount, c.Reason)
}

type billingFinalize struct {
	flags.Data
	Invoice string `arg:"" help:"Id of the draft."`
}

// Run finalizes the draft, which gives it a number.
func (c billingFinalize) Run(ctx context.Context) error {
	return sells(c.Data).Finalize(ctx, c.Invoice)
}

type billingWriteOff struct {
	flags.Data
	Invoice string `arg:"" help:"Number or id of the invoice."`
}

// Run writes off the unpaid amount.
func (c billingWriteOff) Run(ctx context.Context) error {
	return sells(c.Data).WriteOff(ctx, c.Invoice)
}

type customerMoney struct {
	flags.Data
	Customer string `arg:"" help:"Email address of a user, or slug of a team."`
	Amount   string `arg:"" help:"Amount, such as 19.00."`
	Currency string `help:"Currency of the amount." default:"EUR" placeholder:"CODE"`
}

type billingCredit struct {
	customerMoney
	Reason string `help:"Reason, for the audit log." required:"" placeholder:"TEXT"`
}

// Run adds the credit.
func (c billingCredit) Run(ctx context.Context) error {
	return sells(c.Data).Credit(ctx, c.Customer, c.Amount, c.Currency, c.Reason, false)
}

type billingRefund struct {
	customerMoney
	Reference string `help:"The bank's reference of the transfer. No two transfers have the same." required:"" placeholder:"TEXT"`
}

// Run records the refund.
func (c billingRefund) Run(ctx context.Context) error {
	return sells(c.Data).Credit(ctx, c.Customer, c.Amount, c.Currency, c.Reference, true)
}

type billingCoupon struct {
	flags.Data
	Code        string        `arg:"" help:"Code that customers enter, such as SPRING-27."`
	Percent     string        `help:"Percentage off, such as 25." xor:"worth" required:"" placeholder:"PERCENT"`
	Amount      string        `help:"Amount off, such as 5.00." xor:"worth" required:"" placeholder:"AMOUNT"`
	Currency    string        `help:"Currency of the amount." default:"EUR" placeholder:"CODE"`
	Periods     int64         `help:"Number of periods." default:"1" placeholder:"N"`
	Redemptions int64         `help:"How many customers can redeem it. 0: any number." default:"0" placeholder:"N"`
	Lasts       time.Duration `help:"How long it can be redeemed, such as 720h. Default: no end." placeholder:"DURATION"`
}

// Run creates the coupon.
func (c billingCoupon) Run(ctx context.Context) error {
	return sells(c.Data).Coupon(ctx, plan.Coupon{
		Code: c.Code, Currency: money.Currency(c.Currency), Periods: c.Periods, Most: c.Redemptions,
	}, c.Percent, c.Amount, c.Lasts)
}

type billingGrant struct {
	flags.Data
	Customer string        `arg:"" help:"Email address of a user, or slug of a team."`
	Limit    string        `arg:"" help:"Name of the limit, such as sites."`
	Value    int64         `arg:"" help:"The limit."`
	Lasts    time.Duration `help:"How long it is in force, such as 720h. Default: no end." placeholder:"DURATION"`
	Reason   string        `help:"Reason, for the audit log." required:"" placeholder:"TEXT"`
}

// Run grants the limit.
func (c billingGrant) Run(ctx context.Context) error {
	return sells(c.Data).Grant(ctx, c.Customer, c.Limit, c.Value, c.Lasts, c.Reason)
}

type billingVAT struct {
	flags.Data
	Customer string `arg:"" help:"Email address of a user, or slug of a team."`
	State    string `arg:"" optional:"" help:"valid or invalid. Without it, what is known is shown." enum:"valid,invalid," default:""`
}

// Run stores the result of the check.
func (c billingVAT) Run(ctx context.Context) error {
	if c.State == "" {
		return sells(c.Data).ShowVAT(ctx, c.Customer)
	}
	return sells(c.Data).VAT(ctx, c.Customer, c.State == "valid")
}

type billingRecompute struct {
	flags.Data
	Invoice string `arg:"" optional:"" help:"Number or id of the invoice. Default: all."`
}

// Run recomputes the invoice and compares.
func (c billingRecompute) Run(ctx context.Context) error {
	return sells(c.Data).Recompute(ctx, c.Invoice)
}

type billingCheck struct{ flags.Data }

// Run checks the books.
func (c billingCheck) Run(ctx context.Context) error { return sells(c.Data).Check(ctx) }

type billingStripe struct {
	Connect    stripeConnect    `cmd:"" help:"Accept cards with an API key of Stripe, read from a file. A restricted key suffices."`
	Secret     stripeSecret     `cmd:"" help:"Set the signing secret of the webhook at Stripe, read from a file."`
	Status     stripeStatus     `cmd:"" help:"Show what is connected, and what differs from the ledger."`
	Replay     stripeReplay     `cmd:"" help:"Read the events of Stripe again."`
	Disconnect stripeDisconnect `cmd:"" help:"Stop accepting cards."`
}

type stripeConnect struct {
	flags.Data
	File string `arg:"" help:"File with the API key, or - for standard input."`
}

// Run connects the account, also while the server runs.
func (c stripeConnect) Run(ctx context.Context) error {
	return withFile(c.File, func(r io.Reader) error { return sells(c.Data).StripeConnect(ctx, r) })
}

type stripeSecret struct {
	flags.Data
	File string `arg:"" help:"File with the signing secret, or - for standard input."`
}

// Run stores the secret.
func (c stripeSecret) Run(ctx context.Context) error {
	return withFile(c.File, func(r io.Reader) error { return sells(c.Data).StripeSecret(ctx, r) })
}

type stripeStatus struct{ flags.Data }

// Run prints which account is connected.
func (c stripeStatus) Run(ctx context.Context) error { return sells(c.Data).StripeStatus(ctx) }

type stripeReplay struct {
	flags.Data
	Since time.Duration `help:"How far back, at most 720h." default:"72h" placeholder:"DURATION"`
}

// Run makes the server read the events again.
func (c stripeReplay) Run(ctx context.Context) error { return sells(c.Data).StripeReplay(ctx, c.Since) }

type stripeDisconnect struct{ flags.Data }

// Run disconnects the account.
func (c stripeDisconnect) Run(ctx context.Context) error { return sells(c.Data).StripeDisconnect(ctx) }
