// Package webhook owns outgoing notifications: subscriptions, and delivering each event to
// its endpoint, signed, at least once.
//
// EmitTx stores the body inside the caller's transaction and queues one delivery per
// subscription and name; the dispatcher (Run) sends them, so a rollback sends nothing and a
// crash loses nothing. A receiver may get an event twice, with the same webhook-id and the
// same bytes; the order is not guaranteed. Endpoints take turns and have at most four requests
// in flight each, so a slow endpoint doesn't delay others. The package never reads another
// package's tables: callers pass the content of events. It never follows a redirect and never
// sends a header that a user chose.
package webhook

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/id"

	"github.com/prometheus/client_golang/prometheus"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/signature"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/webhook/delivery"
	"slipway/internal/tenant/webhook/event"
)

// Config holds what webhooks stand on. DB and Seal are required; Run needs Out too.
type Config struct {
	DB       *db.DB
	Seal     *seal.Sealer
	Out      *http.Client // from egress: refuses private addresses, follows no redirect
	Log      *slog.Logger
	Timeout  time.Duration         // per attempt, the answer's body included; 0 means 15 s
	Schedule []time.Duration       // delays after a failure; nil: the ten attempts of Standard Webhooks
	Slots    int                   // requests in flight at once, all endpoints; 0 means 1024
	Poll     time.Duration         // the safety net under lost wake-ups; 0 means 1 s
	Lease    time.Duration         // after which another node takes a delivery over (PostgreSQL); 0 means 22 s
	Drain    time.Duration         // how long Run lets requests end; 0 means 5 s
	Keep     time.Duration         // how long finished deliveries are kept; 0 means 30 days
	MaxLog   int                   // finished deliveries that are kept of one owner; 0 means 100,000
	Metrics  prometheus.Registerer // nil: none

	Operations *operation.Operations // required by RedeliverAllTx and its job

	Billing bool // whether events of subscriptions and payments are sent here

	Limits *limits.Limits // Optional: without it the service's own.
	// Mail tells owners of webhooks that have failed for a day, and of those that are turned
	// off. Optional.
	Mail account.Mailer
}

// schedule is Standard Webhooks' own: ten attempts within 75 h 35 min.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Webhooks holds the subscriptions and sends to them. It is safe for concurrent use.
type Webhooks struct {
	c       Config
	metrics *metrics
	hosts   *delivery.Hosts
}

// New starts nothing.
func New(c Config) *Webhooks {
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.Slots = cmp.Or(c.Slots, 1024)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Lease = cmp.Or(c.Lease, 22*time.Second) // and as long as an attempt and the writing of its outcome take
	c.Drain = cmp.Or(c.Drain, 5*time.Second)
	c.Keep = cmp.Or(c.Keep, 30*24*time.Hour)
	c.MaxLog = cmp.Or(c.MaxLog, 100_000)
	if c.Schedule == nil {
		c.Schedule = schedule
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.Webhooks, `SELECT count(*) FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at = 0`)
	return &Webhooks{c, newMetrics(c.Metrics), delivery.NewHosts()}
}

// ID names a webhook: "hook_" and 26 characters.
type ID = id.Webhook

// Webhook is a subscription. Its secret is not in it; Reveal tells a generated one.
type Webhook struct {
	ID           ID
	URL          string
	Events       []string
	SiteIDs      []string // whose events it gets; empty: all sites
	Active       bool
	Reason       string // why the service disabled it: "gone" after a 410, "failing" after five days of failures; empty otherwise
	Generated    bool   // the secret was made here
	FailingSince db.Time
	Silent       bool    // the last attempts met no answer: it is probed once a minute
	OverlapEnds  db.Time // until then the secret before this one signs too; 0: it doesn't
	CreatedAt    db.Time
	UpdatedAt    db.Time
}

// NewWebhook holds the fields of a webhook to create.
type NewWebhook struct {
	URL    string
	Events []string
	Secret *string  // 1 to 256 characters; nil: one is generated
	Sites  []string // ids of the sites whose events it gets; empty: all
}

// Change holds the fields to update; nil fields stay as they are.
type Change struct {
	URL    *string
	Events []string
	Active *bool
	Sites  []string // empty but not nil: all sites
}

const (
	maxSecret   = 256
	goneReason  = "gone"
	failing     = "failing"
	never       = db.Time(1 << 60)
	topic       = "webhooks"
	hookColumns = `id, url, events, site_ids, active, reason, generated, failing_since, timeouts, prev_until, created_at, updated_at`
	sealPurpose = "webhook "
	skipPending = `UPDATE webhook_deliveries SET state = 'skipped', finished_at = $2 WHERE hook_id = $1 AND state = 'pending'`
	maxInFlight = 4
)

// Create makes a subscription, or says what is wrong with it.
func (w *Webhooks) Create(ctx context.Context, owner account.OwnerID, n NewWebhook) (hook Webhook, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		hook, err = w.CreateTx(ctx, tx, owner, n)
		return err
	})
	return hook, err
}

// CreateTx is Create inside the caller's transaction.
func (w *Webhooks) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, n NewWebhook) (Webhook, error) {
	url, err := delivery.CheckURL(n.URL)
	if err != nil {
		return Webhook{}, err
	}
	events, err := w.checkEvents(n.Events)
	if err != nil {
		return Webhook{}, err
	}
	secret, err := checkSecret(n.Secret)
	if err != nil {
		return Webhook{}, err
	}
	sites, err := checkSites(n.Sites)
	if err != nil {
		return Webhook{}, err
	}
	if err := w.c.Limits.RequireTx(ctx, tx, owner, limits.Webhooks, 1); err != nil {
		return Webhook{}, err
	}
	if err := freeURL(ctx, tx, owner, "", url); err != nil {
		return Webhook{}, err
	}
	now := db.Now()
	hook := Webhook{
		ID:        db.ID[ID]("hook"),
		URL:       url,
		Events:    events,
		SiteIDs:   sites,
		Active:    true,
		Generated: n.Secret == nil,
		CreatedAt: now,
		UpdatedAt: now,
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO webhooks (id, owner_id, url, url_key, host, events, site_ids, secret, generated, active, reason, turn_at, created_at,
		updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, TRUE, '', $10, $11, $11)`,
		hook.ID, owner, url, delivery.URLKey(url), delivery.HostOf(url), strings.Join(events, " "), strings.Join(sites, " "),
		w.c.Seal.Seal([]byte(secret), sealPurpose+string(hook.ID)), hook.Generated, never, now)
	if db.Duplicate(err) {
		return Webhook{}, urlTaken("")
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("create webhook: %w", err)
	}
	return hook, nil
}

// freeURL refuses a URL that another webhook of the owner has: one endpoint gets an
// event once, and one webhook can hold all names.
func freeURL(ctx context.Context, tx *db.Tx, owner account.OwnerID, but ID, url string) error {
	rows, err := tx.Query(
		ctx, `SELECT id, url FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at = 0 AND id <> $2`,
		owner, but,
	)
	type row struct{ id, url string }
	taken, err := db.Collect(rows, err, func(r db.Scanner) (x row, err error) { return x, r.Scan(&x.id, &x.url) })
	if err != nil {
		return fmt.Errorf("find webhooks: %w", err)
	}
	for _, x := range taken {
		if delivery.URLKey(x.url) == delivery.URLKey(url) {
			return urlTaken(x.id)
		}
	}
	return nil
}

func urlTaken(by string) error {
	f := fault.New(fault.Conflict, "url_taken", "Another webhook already uses this URL", "change its events instead")
	if by != "" {
		f.Details = "change the events of " + by + " instead"
	}
	return f
}

// checkSecret returns the secret that was given, or a new one for nil.
func checkSecret(s *string) (string, error) {
	if s == nil {
		return signature.NewSecret(), nil
	}
	if n := utf8.RuneCountInString(*s); n == 0 || n > maxSecret || !utf8.ValidString(*s) || strings.ContainsRune(*s, 0) {
		return "", fault.New(fault.Invalid, "invalid_secret", "Invalid webhook secret",
			"secret must have 1 to 256 characters; 16 or more are recommended. Leave it out to have one generated")
	}
	return *s, nil
}

// maxSites is how many sites a webhook may be restricted to.
const maxSites = 100

// checkSites wants ids of sites and drops repeated ones. Whose they are doesn't matter:
// a webhook only ever gets events of its own user.
func checkSites(ids []string) ([]string, error) {
	var out []string
	for _, id := range ids {
		if !siteID(id) {
			return nil, fault.New(fault.Invalid, "invalid_site_ids", "Invalid siteIds",
				"siteIds holds ids of sites, site_…").Got(strings.ToValidUTF8(id[:min(len(id), 100)], "\uFFFD"))
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	if len(out) > maxSites {
		return nil, fault.New(fault.Invalid, "invalid_site_ids", "Too many siteIds",
			fmt.Sprintf("at most %d; leave them out for all sites", maxSites))
	}
	return out, nil
}

func siteID(s string) bool {
	rest, ok := strings.CutPrefix(s, "site_")
	return ok && rest != "" && len(rest) <= 40 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Catalogue lists every name that can be subscribed to here.
func (w *Webhooks) Catalogue() []event.Entry { return event.Catalogue(w.c.Billing) }

// Billing reports whether events of subscriptions and payments are sent here.
func (w *Webhooks) Billing() bool { return w.c.Billing }

// checkEvents wants known names and drops repeated ones.
func (w *Webhooks) checkEvents(names []string) ([]string, error) {
	bad := func(details string, received any) error {
		return fault.New(fault.Invalid, "invalid_events", "Invalid webhook events", details).Got(received)
	}
	if len(names) == 0 {
		return nil, bad("events must name at least one event", nil)
	}
	var out []string
	for _, n := range names {
		if !event.Known(n, w.c.Billing) {
			if len(n) > 100 {
				n = n[:100]
			}
			var all []string
			for _, e := range w.Catalogue() {
				all = append(all, e.Name)
			}
			return nil, bad("events must be among "+strings.Join(all, ", "), strings.ToValidUTF8(n, "\uFFFD"))
		}
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out, nil
}

// List returns all webhooks of the owner, the newest first; there are at most 100.
func (w *Webhooks) List(ctx context.Context, owner account.OwnerID) ([]Webhook, error) {
	rows, err := w.c.DB.Query(
		ctx,
		`SELECT `+hookColumns+` FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at = 0 ORDER BY id DESC`,
		owner,
	)
	list, err := db.Collect(rows, err, scanHook)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	return list, nil
}

// Get returns the owner's webhook, or a NotFound fault.
func (w *Webhooks) Get(ctx context.Context, owner account.OwnerID, id ID) (Webhook, error) {
	return get(ctx, w.c.DB, owner, id)
}

// GetTx is Get inside the caller's transaction.
func (w *Webhooks) GetTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Webhook, error) {
	return get(ctx, tx, owner, id)
}

func get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Webhook, error) {
	return scanHook(r.QueryRow(
		ctx,
		`SELECT `+hookColumns+` FROM webhooks WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at = 0`,
		id,
		owner,
	))
}

func scanHook(r db.Scanner) (Webhook, error) {
	var h Webhook
	var events, sites string
	var timeouts int
	err := r.Scan(
		&h.ID, &h.URL, &events, &sites, &h.Active, &h.Reason, &h.Generated, &h.FailingSince, &timeouts,
		&h.OverlapEnds, &h.CreatedAt, &h.UpdatedAt,
	)
	if errors.Is(err, sql.ErrNoRows) {
		return Webhook{}, fault.Missing("webhook")
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("read webhook: %w", err)
	}
	h.Events, h.SiteIDs = strings.Fields(events), strings.Fields(sites)
	h.Silent = timeouts >= breakerAfter
	if h.OverlapEnds <= db.Now() {
		h.OverlapEnds = 0
	}
	return h, nil
}

// Reveal returns the secret that was generated for a webhook, for its owner's dashboard;
// a fault where the owner gave it, since they know it.
func (w *Webhooks) Reveal(ctx context.Context, owner account.OwnerID, id ID) (string, error) {
	var sealed string
	var generated bool
	err := w.c.DB.QueryRow(
		ctx,
		`SELECT secret, generated FROM webhooks WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at = 0`,
		id,
		owner,
	).Scan(&sealed, &generated)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.Missing("webhook")
	}
	if err != nil {
		return "", fmt.Errorf("reveal secret: %w", err)
	}
	if !generated {
		return "", fault.New(fault.Conflict, "secret_not_generated", "The secret was not generated by Slipway",
			"a secret that you chose is never shown again")
	}
	secret, err := w.c.Seal.Open(sealed, sealPurpose+string(id))
	if err != nil {
		return "", fmt.Errorf("reveal secret: %w", err)
	}
	return string(secret), nil
}

// Update changes what is asked for. Disabling a webhook skips what is queued for it;
// enabling it forgets its failures. A change that changes nothing writes nothing.
func (w *Webhooks) Update(ctx context.Context, owner account.OwnerID, id ID, c Change) (hook Webhook, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		hook, err = w.UpdateTx(ctx, tx, owner, id, c)
		return err
	})
	return hook, err
}

// UpdateTx is Update inside the caller's transaction.
func (w *Webhooks) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, c Change) (Webhook, error) {
	// An update that changes nothing takes the row's lock in both dialects.
	if _, err := tx.Exec(ctx, `UPDATE webhooks SET id = id WHERE id = $1 AND owner_id = $2`, id, owner); err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	hook, err := get(ctx, tx, owner, id)
	if err != nil {
		return Webhook{}, err
	}
	before := hook
	if c.URL != nil {
		if hook.URL, err = delivery.CheckURL(*c.URL); err != nil {
			return Webhook{}, err
		}
		if hook.URL != before.URL {
			if err := freeURL(ctx, tx, owner, id, hook.URL); err != nil {
				return Webhook{}, err
			}
		}
	}
	if c.Sites != nil {
		if hook.SiteIDs, err = checkSites(c.Sites); err != nil {
			return Webhook{}, err
		}
	}
	if c.Events != nil {
		if hook.Events, err = w.checkEvents(c.Events); err != nil {
			return Webhook{}, err
		}
	}
	if hook.URL == before.URL && slices.Equal(
		hook.Events,
		before.Events,
	) && slices.Equal(hook.SiteIDs, before.SiteIDs) && (c.Active == nil || *c.Active == before.Active) {
		return before, nil
	}
	now := db.Now()
	hook.UpdatedAt = now
	if c.Active != nil && *c.Active != hook.Active {
		hook.Active, hook.Reason, hook.FailingSince = *c.Active, "", 0
		_, err := tx.Exec(
			ctx,
			`UPDATE webhooks SET active = $2, reason = '', failing_since = 0, failures = 0, timeouts = 0, warned_at = 0, floor_at = 0 WHERE id = $1`,
			id,
			hook.Active,
		)
		if err == nil && !hook.Active {
			_, err = tx.Exec(ctx, skipPending, id, now)
		}
		if err == nil {
			err = retime(ctx, tx, id)
		}
		if err != nil {
			return Webhook{}, fmt.Errorf("update webhook: %w", err)
		}
	}
	_, err = tx.Exec(
		ctx,
		`UPDATE webhooks SET url = $2, url_key = $3, host = $4, events = $5, site_ids = $6, updated_at = $7 WHERE id = $1`,
		id, hook.URL, delivery.URLKey(hook.URL), delivery.HostOf(hook.URL), strings.Join(hook.Events, " "),
		strings.Join(hook.SiteIDs, " "), now,
	)
	if db.Duplicate(err) {
		return Webhook{}, urlTaken("")
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	return hook, nil
}

// remove deletes webhooks: their secrets go at once, the rest by and by.
const remove = `UPDATE webhooks SET deleted_at = $2, active = FALSE, secret = '', prev_secret = '', url_key = ''
	WHERE owner_id = $1 AND deleted_at = 0`

// Delete removes a webhook. What is queued for it is not sent; its log goes with it.
func (w *Webhooks) Delete(ctx context.Context, owner account.OwnerID, id ID) error {
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := w.DeleteTx(ctx, tx, owner, id)
		return err
	})
}

// DeleteTx is Delete inside the caller's transaction, and says what was deleted.
func (w *Webhooks) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Webhook, error) {
	hook, err := get(ctx, tx, owner, id)
	if err != nil {
		return Webhook{}, err
	}
	n, err := tx.Exec(ctx, remove+` AND id = $3`, owner, db.Now(), id)
	if err != nil {
		return Webhook{}, fmt.Errorf("delete webhook: %w", err)
	}
	if n == 0 {
		return Webhook{}, fault.Missing("webhook")
	}
	return hook, nil
}

// DeleteAllTx removes every webhook of an owner who goes.
func (w *Webhooks) DeleteAllTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	if _, err := tx.Exec(ctx, remove, owner, db.Now()); err != nil {
		return fmt.Errorf("delete webhooks: %w", err)
	}
	return nil
}
