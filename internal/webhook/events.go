package webhook

import (
	"bytes"
	"encoding/json"
	"slices"

	"slipway/internal/db"
)

// Event is an occurrence to tell of: made by the constructors below, sent by EmitTx.
type Event struct {
	names []string // set A's first; the other one means the same
	data  data
}

// data is what payloads carry, with the names that the contract shows.
type data struct {
	Site         *siteData         `json:"site,omitempty"`
	Deployment   *deploymentData   `json:"deployment,omitempty"`
	Domain       *domainData       `json:"domain,omitempty"`
	SSL          *sslData          `json:"ssl,omitempty"`
	Subscription *subscriptionData `json:"subscription,omitempty"`
	Payment      *paymentData      `json:"payment,omitempty"`
	Webhook      *webhookData      `json:"webhook,omitempty"`
}

type payload struct {
	ID        string `json:"id"`
	Event     string `json:"event"`
	Timestamp string `json:"timestamp"`
	Data      data   `json:"data"`
}

// Site is the site an event is about.
type Site struct{ ID, Name string }

// Deployment is a deployment in webhook words: pending, building, ready, error, canceled.
type Deployment struct {
	ID, URL, Status string
	CreatedAt       db.Time
}

// Domain is a custom domain.
type Domain struct {
	ID, Name, Status, SSLStatus string
	CreatedAt                   db.Time
}

// Certificate is what is known of a domain's certificate. Zero times are null.
type Certificate struct {
	Domain, Issuer       string
	NotBefore, ExpiresAt db.Time
	LastError            string // in words for the owner; empty: none
	NextAttemptAt        db.Time
}

// Subscription is a plan that somebody pays for.
type Subscription struct {
	ID, Plan, Status string
	CurrentPeriodEnd db.Time
}

// Payment is money that moved, or didn't; Amount is in the currency's smallest unit.
type Payment struct {
	ID               string
	Amount           int64
	Currency, Status string
}

type siteData struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type deploymentData struct {
	ID        string  `json:"id"`
	URL       string  `json:"url"`
	Status    string  `json:"status"`
	CreatedAt *string `json:"createdAt"`
}

type domainData struct {
	ID        string  `json:"id"`
	Name      string  `json:"name"`
	Status    string  `json:"status"`
	SSLStatus string  `json:"sslStatus"`
	SiteID    string  `json:"siteId"`
	CreatedAt *string `json:"createdAt"`
}

type sslData struct {
	Domain        string  `json:"domain"`
	Issuer        *string `json:"issuer"`
	NotBefore     *string `json:"notBefore"`
	ExpiresAt     *string `json:"expiresAt"`
	LastError     *string `json:"lastError"`
	NextAttemptAt *string `json:"nextAttemptAt"`
}

type subscriptionData struct {
	ID               string  `json:"id"`
	Plan             string  `json:"plan"`
	Status           string  `json:"status"`
	CurrentPeriodEnd *string `json:"currentPeriodEnd"`
}

type paymentData struct {
	ID       string `json:"id"`
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"`
	Status   string `json:"status"`
}

type webhookData struct {
	ID string `json:"id"`
}

func site(s Site) data { return data{Site: &siteData{s.ID, s.Name}} }

func deployment(s Site, d Deployment) data {
	out := site(s)
	out.Deployment = &deploymentData{d.ID, d.URL, d.Status, moment(d.CreatedAt)}
	return out
}

func domain(s Site, d Domain) data {
	out := site(s)
	out.Domain = &domainData{d.ID, d.Name, d.Status, d.SSLStatus, s.ID, moment(d.CreatedAt)}
	return out
}

func ssl(s Site, c Certificate) data {
	out := site(s)
	out.SSL = &sslData{c.Domain, word(c.Issuer), moment(c.NotBefore), moment(c.ExpiresAt), word(c.LastError), moment(c.NextAttemptAt)}
	return out
}

func subscription(s Subscription) data {
	return data{Subscription: &subscriptionData{s.ID, s.Plan, s.Status, moment(s.CurrentPeriodEnd)}}
}

func payment(p Payment) data {
	return data{Payment: &paymentData{p.ID, p.Amount, p.Currency, p.Status}}
}

// SiteCreated: the row is there.
func SiteCreated(s Site) Event { return Event{[]string{"site.created"}, site(s)} }

// SiteUpdated: name, branch, settings, env or status changed.
func SiteUpdated(s Site) Event { return Event{[]string{"site.updated"}, site(s)} }

// SiteDeleted: the deletion was accepted.
func SiteDeleted(s Site) Event { return Event{[]string{"site.deleted"}, site(s)} }

// DeploymentStarted: it left the queue.
func DeploymentStarted(s Site, d Deployment) Event {
	return Event{[]string{"deployment.started", "deployment.created"}, deployment(s, d)}
}

// DeploymentCompleted: it is live.
func DeploymentCompleted(s Site, d Deployment) Event {
	return Event{[]string{"deployment.completed", "deployment.succeeded"}, deployment(s, d)}
}

// DeploymentFailed: it ended without becoming live, also when it was canceled.
func DeploymentFailed(s Site, d Deployment) Event {
	return Event{[]string{"deployment.failed"}, deployment(s, d)}
}

// DomainAdded: the claim was made.
func DomainAdded(s Site, d Domain) Event { return Event{[]string{"domain.added"}, domain(s, d)} }

// DomainVerified: the proof was seen.
func DomainVerified(s Site, d Domain) Event {
	return Event{[]string{"domain.verified"}, domain(s, d)}
}

// DomainFailed: the checks gave up.
func DomainFailed(s Site, d Domain) Event { return Event{[]string{"domain.failed"}, domain(s, d)} }

// SSLIssued: the first certificate is there.
func SSLIssued(s Site, c Certificate) Event { return Event{[]string{"ssl.issued"}, ssl(s, c)} }

// SSLRenewed: a further certificate is there.
func SSLRenewed(s Site, c Certificate) Event { return Event{[]string{"ssl.renewed"}, ssl(s, c)} }

// SSLFailed: an attempt to get one failed.
func SSLFailed(s Site, c Certificate) Event { return Event{[]string{"ssl.failed"}, ssl(s, c)} }

// SubscriptionCreated: the billing provider reports a new subscription.
func SubscriptionCreated(s Subscription) Event {
	return Event{[]string{"subscription.created"}, subscription(s)}
}

// SubscriptionRenewed: a further period began.
func SubscriptionRenewed(s Subscription) Event {
	return Event{[]string{"subscription.renewed"}, subscription(s)}
}

// SubscriptionCanceled: it will not be renewed.
func SubscriptionCanceled(s Subscription) Event {
	return Event{[]string{"subscription.canceled"}, subscription(s)}
}

// SubscriptionExpired: its last period is over.
func SubscriptionExpired(s Subscription) Event {
	return Event{[]string{"subscription.expired"}, subscription(s)}
}

// PaymentCompleted: the money came.
func PaymentCompleted(p Payment) Event { return Event{[]string{"payment.completed"}, payment(p)} }

// PaymentFailed: it didn't.
func PaymentFailed(p Payment) Event { return Event{[]string{"payment.failed"}, payment(p)} }

// pingName is sent on demand and cannot be subscribed to.
const pingName = "ping"

// moment is null where there is none yet.
func moment(t db.Time) *string {
	if t == 0 {
		return nil
	}
	s := t.String()
	return &s
}

func word(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// freeze makes the bytes that are stored, signed and sent: compact, without HTML escapes.
func freeze(p payload) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Entry is one name of the vocabulary.
type Entry struct {
	Name        string
	Description string
	SameAs      string          // the name of the other set for the same occurrence; empty: none
	Sample      json.RawMessage // a body as it would be delivered
}

// Catalogue lists every name that can be subscribed to, sorted by group as documented.
func Catalogue() []Entry { return slices.Clone(catalogue) }

var catalogue, known = func() ([]Entry, map[string]bool) {
	at := db.Time(1767225600000) // 2026-01-01
	s := Site{"site_abcdefghijklmnopqrstuvwxyz", "My site"}
	d := func(status string) Deployment {
		return Deployment{"dep_abcdefghijklmnopqrstuvwxyz", "https://opqrstuvwxyz--my-site.example.com", status, at}
	}
	dom := func(status, ssl string) Domain {
		return Domain{"dom_abcdefghijklmnopqrstuvwxyz", "www.example.com", status, ssl, at}
	}
	cert := Certificate{Domain: "www.example.com", Issuer: "Let's Encrypt", NotBefore: at, ExpiresAt: at + 90*86_400_000}
	sub := func(status string) Subscription {
		return Subscription{"sub_abcdefghijklmnopqrstuvwxyz", "pro", status, at + 30*86_400_000}
	}
	pay := func(status string) Payment {
		return Payment{"pay_abcdefghijklmnopqrstuvwxyz", 1900, "USD", status}
	}
	all := []struct {
		Event
		about string
	}{
		{DeploymentStarted(s, d("building")), "A deployment left the queue and started."},
		{DeploymentCompleted(s, d("ready")), "A deployment completed and is live."},
		{DeploymentFailed(s, d("error")), "A deployment ended without becoming live."},
		{DomainAdded(s, dom("pending", "pending")), "A domain was added to a site."},
		{DomainVerified(s, dom("active", "pending")), "The ownership of a domain was proven."},
		{DomainFailed(s, dom("failed", "pending")), "The checks of a domain gave up."},
		{SSLIssued(s, cert), "A first certificate was obtained."},
		{SSLRenewed(s, cert), "A certificate was renewed."},
		{SSLFailed(s, Certificate{Domain: "www.example.com", LastError: "the domain doesn't point here", NextAttemptAt: at}), "An attempt to obtain a certificate failed."},
		{SiteCreated(s), "A site was created."},
		{SiteUpdated(s), "The name, branch, settings, env or status of a site changed."},
		{SiteDeleted(s), "The deletion of a site was accepted."},
		{SubscriptionCreated(sub("active")), "A subscription began."},
		{SubscriptionRenewed(sub("active")), "A subscription entered its next period."},
		{SubscriptionCanceled(sub("canceled")), "A subscription will not be renewed."},
		{SubscriptionExpired(sub("expired")), "A subscription ended."},
		{PaymentCompleted(pay("completed")), "A payment completed."},
		{PaymentFailed(pay("failed")), "A payment failed."},
	}
	var entries []Entry
	names := map[string]bool{}
	for _, a := range all {
		for i, n := range a.names {
			e := Entry{Name: n, Description: a.about}
			if len(a.names) == 2 {
				e.SameAs = a.names[1-i]
			}
			e.Sample, _ = freeze(payload{"evt_abcdefghijklmnopqrstuvwxyz", n, at.String(), a.data})
			entries = append(entries, e)
			names[n] = true
		}
	}
	return entries, names
}()
