// Package event owns the content of events: their names, bodies, and a catalogue with samples and schemas. Package
// webhook delivers them.
package event

import (
	"bytes"
	"encoding/json"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// Event is an event to emit, made by this package's constructors.
type Event struct {
	names []string // set A's name first; the other means the same
	data  data
	hops  int // of the deployment
}

// Names returns the event's names, set A's first. Both mean the same.
func (e Event) Names() []string { return e.names }

// Hops returns the length of the chain of webhooks and deploy hooks that caused the event's deployment.
func (e Event) Hops() int { return e.hops }

// Body returns the bytes to store, sign and send under one of the event's names.
func (e Event) Body(id, name string, at db.Time) ([]byte, error) {
	return freeze(payload{id, name, at.String(), e.data})
}

// Site returns the ID of the event's site, or "".
func (e Event) Site() id.Site {
	if e.data.Site == nil {
		return ""
	}
	return e.data.Site.ID
}

// data is the data of a body, with the contract's field names.
type data struct {
	Site         *siteData         `json:"site,omitempty"`
	Deployment   *deploymentData   `json:"deployment,omitempty"`
	Domain       *domainData       `json:"domain,omitempty"`
	SSL          *sslData          `json:"ssl,omitempty"`
	Subscription *subscriptionData `json:"subscription,omitempty"`
	Payment      *paymentData      `json:"payment,omitempty"`
	Invoice      *invoiceData      `json:"invoice,omitempty"`
	Webhook      *webhookData      `json:"webhook,omitempty"`
	Backup       *backupData       `json:"backup,omitempty"`
	Team         *teamData         `json:"team,omitempty"`
	Member       *memberData       `json:"member,omitempty"`
	Transfer     *transferData     `json:"transfer,omitempty"`
	App          *appData          `json:"app,omitempty"`
	Grant        *grantData        `json:"grant,omitempty"`
	Usage        *usageData        `json:"usage,omitempty"`
	Changed      []string          `json:"changed,omitempty"`
}

type payload struct {
	ID        string `json:"id"`
	Event     string `json:"event"`
	Timestamp string `json:"timestamp"`
	Data      data   `json:"data"`
}

// Site is the site of an event. URL is only in site.* events; empty means null.
type Site struct {
	ID        id.Site
	Name, URL string
}

// Deployment is a deployment. Its Status is in the vocabulary of webhooks: pending, building, ready, error, canceled.
// Empty strings and zero times are null.
type Deployment struct {
	ID                                      id.Deployment
	URL, Status                             string
	Branch                                  string
	CommitHash, CommitMessage, CommitAuthor string
	Trigger, Target                         string // who requested it; production or preview
	Error                                   string // why it didn't become live
	CreatedAt, StartedAt, CompletedAt       db.Time
	Hops                                    int // length of the chain of webhooks and deploy hooks that caused it
}

// Domain is a custom domain. Reason says why it isn't active; empty means null.
type Domain struct {
	ID                              id.Domain
	Name, Status, SSLStatus, Reason string
	CreatedAt                       db.Time
}

// Certificate is a domain's certificate. Zero times are null.
type Certificate struct {
	Domain, Issuer       string
	NotBefore, ExpiresAt db.Time
	LastError            string // a sentence for the owner; empty: none
	NextAttemptAt        db.Time
}

// Backup is a completed or failed backup. A zero VerifiedAt and an empty Error are null.
type Backup struct {
	ID           id.Backup
	Type, Status string
	Size         int64 // bytes of its content
	VerifiedAt   db.Time
	Error        string
}

type backupData struct {
	ID         id.Backup `json:"id"`
	Type       string    `json:"type" enum:"manual,scheduled,before_update,before_restore,before_delete"`
	Status     string    `json:"status" enum:"completed,failed"`
	SizeBytes  int64     `json:"sizeBytes"`
	VerifiedAt *string   `json:"verifiedAt" format:"date-time"`
	Error      *string   `json:"error"`
}

type siteData struct {
	ID   id.Site `json:"id"`
	Name string  `json:"name"`
	URL  string  `json:"url,omitempty" format:"uri"`
}

type deploymentData struct {
	ID            id.Deployment `json:"id"`
	URL           string        `json:"url" format:"uri"`
	Status        string        `json:"status" enum:"pending,building,ready,error,canceled"`
	Branch        *string       `json:"branch"`
	CommitHash    *string       `json:"commitHash"`
	CommitMessage *string       `json:"commitMessage"`
	CommitAuthor  *string       `json:"commitAuthor"`
	Trigger       string        `json:"trigger"`
	Target        string        `json:"target" enum:"production,preview"`
	Error         *string       `json:"error"`
	CreatedAt     *string       `json:"createdAt" format:"date-time"`
	StartedAt     *string       `json:"startedAt" format:"date-time"`
	CompletedAt   *string       `json:"completedAt" format:"date-time"`
	Duration      *int64        `json:"duration"` // whole seconds, if ended
}

type domainData struct {
	ID        id.Domain `json:"id"`
	Name      string    `json:"name"`
	Status    string    `json:"status" enum:"pending,active,failed"`
	Reason    *string   `json:"reason"`
	SSLStatus string    `json:"sslStatus" enum:"pending,active,failed,expired"`
	SiteID    id.Site   `json:"siteId"`
	CreatedAt *string   `json:"createdAt" format:"date-time"`
}

type sslData struct {
	Domain        string  `json:"domain"`
	Issuer        *string `json:"issuer"`
	NotBefore     *string `json:"notBefore" format:"date-time"`
	ExpiresAt     *string `json:"expiresAt" format:"date-time"`
	Reason        *string `json:"reason"` // only in ssl.failed
	LastError     *string `json:"lastError"`
	NextAttemptAt *string `json:"nextAttemptAt" format:"date-time"`
}

type webhookData struct {
	ID id.Webhook `json:"id"`
}

func site(s Site) data { return data{Site: &siteData{s.ID, s.Name, s.URL}} }

func deployment(s Site, d Deployment) data {
	out := site(Site{ID: s.ID, Name: s.Name})
	out.Deployment = &deploymentData{
		d.ID, d.URL, d.Status, word(d.Branch), word(d.CommitHash), word(d.CommitMessage), word(d.CommitAuthor),
		d.Trigger, d.Target, word(d.Error), moment(d.CreatedAt), moment(d.StartedAt), moment(d.CompletedAt), nil,
	}
	if d.StartedAt != 0 && d.CompletedAt != 0 {
		seconds := int64(d.CompletedAt.Sub(d.StartedAt).Seconds())
		out.Deployment.Duration = &seconds
	}
	return out
}

func domain(s Site, d Domain) data {
	out := site(Site{ID: s.ID, Name: s.Name})
	out.Domain = &domainData{d.ID, d.Name, d.Status, word(d.Reason), d.SSLStatus, s.ID, moment(d.CreatedAt)}
	return out
}

func ssl(s Site, c Certificate) data {
	out := site(Site{ID: s.ID, Name: s.Name})
	out.SSL = &sslData{c.Domain, word(c.Issuer), moment(c.NotBefore), moment(c.ExpiresAt), nil, word(c.LastError), moment(c.NextAttemptAt)}
	return out
}

// SiteCreated returns the event for a created site.
func SiteCreated(s Site) Event { return Event{names: []string{"site.created"}, data: site(s)} }

// SiteUpdated returns the event for a site whose fields changed: name, repository, branch, framework, build,
// credential, env, status.
func SiteUpdated(s Site, changed ...string) Event {
	e := Event{names: []string{"site.updated"}, data: site(s)}
	e.data.Changed = changed
	return e
}

// SiteDeleted returns the event for a site whose deletion was accepted.
func SiteDeleted(s Site) Event { return Event{names: []string{"site.deleted"}, data: site(s)} }

// DeploymentStarted returns the event for a deployment that left the queue.
func DeploymentStarted(s Site, d Deployment) Event {
	return Event{[]string{"deployment.started", "deployment.created"}, deployment(s, d), d.Hops}
}

// DeploymentCompleted returns the event for a deployment that is live.
func DeploymentCompleted(s Site, d Deployment) Event {
	return Event{[]string{"deployment.completed", "deployment.succeeded"}, deployment(s, d), d.Hops}
}

// DeploymentFailed returns the event for a deployment that failed or was canceled.
func DeploymentFailed(s Site, d Deployment) Event {
	return Event{[]string{"deployment.failed"}, deployment(s, d), d.Hops}
}

// DomainAdded returns the event for a claimed domain.
func DomainAdded(s Site, d Domain) Event {
	return Event{names: []string{"domain.added"}, data: domain(s, d)}
}

// DomainVerified returns the event for a domain whose ownership is proven.
func DomainVerified(s Site, d Domain) Event {
	return Event{names: []string{"domain.verified"}, data: domain(s, d)}
}

// DomainFailed returns the event for a domain whose checks gave up.
func DomainFailed(s Site, d Domain) Event {
	return Event{names: []string{"domain.failed"}, data: domain(s, d)}
}

// SSLIssued returns the event for a domain's first certificate.
func SSLIssued(s Site, c Certificate) Event {
	return Event{names: []string{"ssl.issued"}, data: ssl(s, c)}
}

// SSLRenewed returns the event for a renewed certificate.
func SSLRenewed(s Site, c Certificate) Event {
	return Event{names: []string{"ssl.renewed"}, data: ssl(s, c)}
}

// SSLFailed returns the event for a failed attempt to obtain a certificate.
func SSLFailed(s Site, c Certificate) Event {
	e := Event{names: []string{"ssl.failed"}, data: ssl(s, c)}
	e.data.SSL.Reason = e.data.SSL.LastError
	return e
}

// PingName is the event that is sent on request and can't be subscribed to.
const PingName = "ping"

// Ping returns the event sent only to the webhook itself.
func Ping(hook id.Webhook) Event {
	return Event{names: []string{PingName}, data: data{Webhook: &webhookData{hook}}}
}

// moment formats a time; 0 is null.
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

// freeze encodes a payload as compact JSON without HTML escapes.
func freeze(p payload) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// BackupCompleted returns the event for a completed backup.
func BackupCompleted(s Site, b Backup) Event {
	return Event{names: []string{"backup.completed"}, data: backup(s, b)}
}

// BackupFailed returns the event for a failed backup.
func BackupFailed(s Site, b Backup) Event {
	return Event{names: []string{"backup.failed"}, data: backup(s, b)}
}

func backup(s Site, b Backup) data {
	out := site(Site{ID: s.ID, Name: s.Name})
	out.Backup = &backupData{b.ID, b.Type, b.Status, b.Size, moment(b.VerifiedAt), word(b.Error)}
	return out
}
