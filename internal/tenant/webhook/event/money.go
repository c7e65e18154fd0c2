package event

import (
	"slipway/internal/platform/db"
)

// Subscription is an owner's subscription. Zero times and an empty reason are null.
type Subscription struct {
	ID, Plan, Status                     string
	CurrentPeriodEnd, CurrentPeriodStart db.Time
	TrialEnd, CancelAt                   db.Time
	Reason                               string // why it was canceled or has expired
}

// Payment is a completed or failed payment. Amount is in the currency's smallest unit. Empty strings and zero times are
// null.
type Payment struct {
	ID                     string
	Amount                 int64
	Currency, Status       string
	Invoice, InvoiceNumber string
	Subscription, Provider string
	Attempt                int64
	FailureCode            string
	NextAttemptAt          db.Time
	Moved                  int64  // refunded or disputed amount; 0: neither
	Dispute                string // open, won or lost
}

// Invoice is a final invoice. Amounts are in the currency's smallest unit.
type Invoice struct {
	ID, Number, Status string
	Net, Tax, Total    int64
	Currency           string
	Subscription       string
	DueAt              db.Time
}

type subscriptionData struct {
	ID                 string  `json:"id"`
	Plan               string  `json:"plan"`
	Status             string  `json:"status" enum:"trialing,active,past_due,paused,canceled,expired"`
	CurrentPeriodEnd   *string `json:"currentPeriodEnd" format:"date-time"`
	CurrentPeriodStart *string `json:"currentPeriodStart" format:"date-time"`
	TrialEnd           *string `json:"trialEnd" format:"date-time"`
	CancelAt           *string `json:"cancelAt" format:"date-time"`
	Reason             *string `json:"reason"` // requested, unpaid or operator
	DeleteAt           *string `json:"deleteAt,omitempty" format:"date-time"`
}

type paymentData struct {
	ID             string  `json:"id"`
	Amount         int64   `json:"amount"`
	Currency       string  `json:"currency"`
	Status         string  `json:"status" enum:"completed,failed,refunded,disputed"`
	InvoiceID      *string `json:"invoiceId"`
	InvoiceNumber  *string `json:"invoiceNumber"`
	SubscriptionID *string `json:"subscriptionId"`
	Provider       string  `json:"provider"`
	Attempt        int64   `json:"attempt"`
	FailureCode    *string `json:"failureCode"`
	NextAttemptAt  *string `json:"nextAttemptAt" format:"date-time"`
	RefundedAmount *int64  `json:"refundedAmount,omitempty"`
	DisputedAmount *int64  `json:"disputedAmount,omitempty"`
	DisputeStatus  string  `json:"disputeStatus,omitempty"` // open, won or lost
}

type invoiceData struct {
	ID             string  `json:"id"`
	Number         string  `json:"number"`
	Status         string  `json:"status" enum:"open,paid"`
	Net            int64   `json:"net"`
	Tax            int64   `json:"tax"`
	Total          int64   `json:"total"`
	Currency       string  `json:"currency"`
	SubscriptionID *string `json:"subscriptionId"`
	DueAt          *string `json:"dueAt" format:"date-time"`
}

func subscription(s Subscription) data {
	return data{Subscription: &subscriptionData{
		s.ID, s.Plan, s.Status, moment(s.CurrentPeriodEnd), moment(s.CurrentPeriodStart), moment(s.TrialEnd), moment(s.CancelAt), word(s.Reason),
		nil,
	}}
}

func payment(p Payment) data {
	d := paymentData{
		ID: p.ID, Amount: p.Amount, Currency: p.Currency, Status: p.Status, InvoiceID: word(p.Invoice), InvoiceNumber: word(p.InvoiceNumber),
		SubscriptionID: word(p.Subscription), Provider: p.Provider, Attempt: p.Attempt, FailureCode: word(p.FailureCode),
		NextAttemptAt: moment(p.NextAttemptAt), DisputeStatus: p.Dispute,
	}
	if p.Dispute != "" {
		d.DisputedAmount = &p.Moved
	} else if p.Moved != 0 {
		d.RefundedAmount = &p.Moved
	}
	return data{Payment: &d}
}

// SubscriptionCreated returns the event for a new subscription.
func SubscriptionCreated(s Subscription) Event {
	return Event{names: []string{"subscription.created"}, data: subscription(s)}
}

// SubscriptionRenewed returns the event for a subscription's new period.
func SubscriptionRenewed(s Subscription) Event {
	return Event{names: []string{"subscription.renewed"}, data: subscription(s)}
}

// SubscriptionCanceled returns the event for a subscription that will not be renewed.
func SubscriptionCanceled(s Subscription) Event {
	return Event{names: []string{"subscription.canceled"}, data: subscription(s)}
}

// SubscriptionExpired returns the event for a subscription that ended.
func SubscriptionExpired(s Subscription) Event {
	return Event{names: []string{"subscription.expired"}, data: subscription(s)}
}

// DeletionScheduled returns the event for an account whose sites will be deleted because its subscription ended unpaid.
// It only exists with billing.
func DeletionScheduled(s Subscription, at db.Time) Event {
	d := subscription(s)
	d.Subscription.DeleteAt = moment(at)
	return Event{names: []string{deletionScheduled}, data: d}
}

// PaymentCompleted returns the event for a completed payment.
func PaymentCompleted(p Payment) Event {
	return Event{names: []string{"payment.completed"}, data: payment(p)}
}

// PaymentFailed returns the event for a failed payment.
func PaymentFailed(p Payment) Event {
	return Event{names: []string{"payment.failed"}, data: payment(p)}
}

// InvoiceFinalized returns the event for an invoice that got its number. It only exists with billing.
func InvoiceFinalized(i Invoice) Event {
	return Event{names: []string{invoiceFinalized}, data: data{Invoice: &invoiceData{
		i.ID, i.Number, i.Status, i.Net, i.Tax, i.Total, i.Currency, word(i.Subscription), moment(i.DueAt),
	}}}
}

// PaymentRefunded returns the event for a refund of part of a payment. It only exists with billing.
func PaymentRefunded(p Payment) Event {
	return Event{names: []string{paymentRefunded}, data: payment(p)}
}

// PaymentDisputed returns the event for a payment reversed by a bank, and for the dispute's result. It only exists with
// billing.
func PaymentDisputed(p Payment) Event {
	return Event{names: []string{paymentDisputed}, data: payment(p)}
}

// The events that only exist with billing.
const (
	invoiceFinalized  = "invoice.finalized"
	paymentRefunded   = "payment.refunded"
	paymentDisputed   = "payment.disputed"
	deletionScheduled = "subscription.deletion_scheduled"
)

// sold reports whether an event only exists with billing.
func sold(name string) bool {
	return name == invoiceFinalized || name == paymentRefunded || name == paymentDisputed || name == deletionScheduled
}
