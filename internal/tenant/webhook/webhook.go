// Package webhook owns webhooks: subscriptions, and the signed delivery of each event to its endpoint at least once.
//
// EmitTx stores the body inside the caller's transaction and enqueues one delivery per subscription and name, which the
// dispatcher (Run) sends. So a rollback sends nothing and a crash loses nothing. A receiver may get an event twice with
// the same webhook-id and bytes; the order isn't guaranteed. Endpoints take turns with at most four requests in flight
// each, so a slow endpoint doesn't delay others. The package never reads another package's tables, follows a redirect,
// or sends a header chosen by a user.
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

// Config holds the settings of Webhooks. DB and Seal are required, and Out for Run.
type Config struct {
	DB       *db.DB
	Seal     *seal.Sealer
	Out      *http.Client // from egress: refuses private addresses, follows no redirect
	Log      *slog.Logger
	Timeout  time.Duration         // per attempt, including the response's body; 0 means 15 s
	Schedule []time.Duration       // delays after failures; nil: the ten attempts of Standard Webhooks
	Slots    int                   // concurrent requests over all endpoints; 0 means 1024
	Poll     time.Duration         // interval that covers lost notifications; 0 means 1 s
	Lease    time.Duration         // after which another node takes over a delivery (PostgreSQL); 0 means 22 s
	Drain    time.Duration         // how long Run waits for requests in flight; 0 means 5 s
	Keep     time.Duration         // retention of ended deliveries; 0 means 30 days
	MaxLog   int                   // ended deliveries kept per owner; 0 means 100,000
	Metrics  prometheus.Registerer // nil: none

	Operations *operation.Operations // required for RedeliverAllTx and its job

	Billing bool // whether events of subscriptions and payments exist

	Limits *limits.Limits // Optional: defaults to the built-in limits.
	// Mail notifies owners of webhooks that have failed for a day or were disabled. Optional.
	Mail account.Mailer
}

// schedule is that of Standard Webhooks: ten attempts within 75 h 35 min.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Webhooks is the service. It is safe for concurrent use.
type Webhooks struct {
	c       Config
	metrics *metrics
	hosts   *delivery.Hosts
}

// New returns the service. It starts nothing.
func New(c Config) *Webhooks {
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	c.Slots = cmp.Or(c.Slots, 1024)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Lease = cmp.Or(c.Lease, 22*time.Second) // at least the time of an attempt and of storing its outcome
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

// Webhook is a subscription without its secret. See [Webhooks.Reveal].
type Webhook struct {
	ID           ID
	URL          string
	Events       []string
	SiteIDs      []string // sites whose events it gets; empty: all
	Active       bool
	Reason       string // why the service disabled it: "gone" after a 410, "failing" after five days of failures; otherwise empty
	Generated    bool   // whether the secret was generated here
	FailingSince db.Time
	Silent       bool    // the last attempts got no response, so it is called once a minute
	OverlapEnds  db.Time // until when the previous secret also signs; 0: it doesn't
	CreatedAt    db.Time
	UpdatedAt    db.Time
}

// NewWebhook is the input of [Webhooks.Create].
type NewWebhook struct {
	URL    string
	Events []string
	Secret *string  // 1 to 256 characters; nil: generate one
	Sites  []string // IDs of the sites whose events it gets; empty: all
}

// Change holds the fields to update. nil fields stay.
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

// Create creates a subscription, or returns an Invalid fault.
func (w *Webhooks) Create(ctx context.Context, owner account.OwnerID, n NewWebhook) (hook Webhook, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		hook, err = w.CreateTx(ctx, tx, owner, n)
		return err
	})
	return hook, err
}

// CreateTx is [Webhooks.Create] inside the caller's transaction.
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

// freeURL refuses a URL that another of the owner's webhooks uses, so that an endpoint gets an event only once. One
// webhook can subscribe to all names.
func freeURL(ctx context.Context, tx *db.Tx, owner account.OwnerID, but ID, url string) error {
	rows, err := tx.Query(ctx,
		`SELECT id, url FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at = 0 AND id <> $2`, owner,
		but)
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

// checkSecret validates a secret, or generates one for nil.
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

// maxSites caps the sites that a webhook can be restricted to.
const maxSites = 100

// checkSites validates site IDs and removes duplicates. It doesn't check ownership, since a webhook only gets its own
// user's events.
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

// Catalogue lists the event names that can be subscribed to.
func (w *Webhooks) Catalogue() []event.Entry { return event.Catalogue(w.c.Billing) }

// Billing reports whether events of subscriptions and payments exist.
func (w *Webhooks) Billing() bool { return w.c.Billing }

// checkEvents validates event names and removes duplicates.
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

// List returns the owner's webhooks, newest first; at most 100.
func (w *Webhooks) List(ctx context.Context, owner account.OwnerID) ([]Webhook, error) {
	rows, err := w.c.DB.Query(ctx,
		`SELECT `+hookColumns+` FROM webhooks WHERE owner_id = $1 AND deleted_at = 0 AND expires_at = 0 ORDER BY id DESC`,
		owner)
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

// GetTx is [Webhooks.Get] inside the caller's transaction.
func (w *Webhooks) GetTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Webhook, error) {
	return get(ctx, tx, owner, id)
}

func get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Webhook, error) {
	return scanHook(r.QueryRow(ctx,
		`SELECT `+hookColumns+` FROM webhooks WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at = 0`,
		id, owner))
}

func scanHook(r db.Scanner) (Webhook, error) {
	var h Webhook
	var events, sites string
	var timeouts int
	err := r.Scan(&h.ID, &h.URL, &events, &sites, &h.Active, &h.Reason, &h.Generated, &h.FailingSince, &timeouts,
		&h.OverlapEnds, &h.CreatedAt, &h.UpdatedAt)
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

// Reveal returns a webhook's generated secret for the owner's dashboard. It returns a fault if the owner chose the
// secret.
func (w *Webhooks) Reveal(ctx context.Context, owner account.OwnerID, id ID) (string, error) {
	var sealed string
	var generated bool
	err := w.c.DB.QueryRow(ctx,
		`SELECT secret, generated FROM webhooks WHERE id = $1 AND owner_id = $2 AND deleted_at = 0 AND expires_at = 0`,
		id, owner).Scan(&sealed, &generated)
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

// Update changes a webhook. Disabling it skips its queued deliveries; enabling it resets its failures. An update
// without changes writes nothing.
func (w *Webhooks) Update(ctx context.Context, owner account.OwnerID, id ID, c Change) (hook Webhook, err error) {
	err = w.c.DB.Write(ctx, func(tx *db.Tx) error {
		hook, err = w.UpdateTx(ctx, tx, owner, id, c)
		return err
	})
	return hook, err
}

// UpdateTx is [Webhooks.Update] inside the caller's transaction.
func (w *Webhooks) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, c Change) (Webhook, error) {
	// A no-op update takes the row's lock in both dialects.
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
	if hook.URL == before.URL && slices.Equal(hook.Events, before.Events) &&
		slices.Equal(hook.SiteIDs, before.SiteIDs) && (c.Active == nil || *c.Active == before.Active) {
		return before, nil
	}
	now := db.Now()
	hook.UpdatedAt = now
	if c.Active != nil && *c.Active != hook.Active {
		hook.Active, hook.Reason, hook.FailingSince = *c.Active, "", 0
		_, err := tx.Exec(ctx,
			`UPDATE webhooks SET active = $2, reason = '', failing_since = 0, failures = 0, timeouts = 0, warned_at = 0, floor_at = 0 WHERE id = $1`,
			id, hook.Active)
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
	_, err = tx.Exec(ctx,
		`UPDATE webhooks SET url = $2, url_key = $3, host = $4, events = $5, site_ids = $6, updated_at = $7 WHERE id = $1`,
		id, hook.URL, delivery.URLKey(hook.URL), delivery.HostOf(hook.URL), strings.Join(hook.Events, " "),
		strings.Join(hook.SiteIDs, " "), now)
	if db.Duplicate(err) {
		return Webhook{}, urlTaken("")
	}
	if err != nil {
		return Webhook{}, fmt.Errorf("update webhook: %w", err)
	}
	return hook, nil
}

// remove marks webhooks as deleted and deletes their secrets. The purge deletes the rest.
const remove = `UPDATE webhooks SET deleted_at = $2, active = FALSE, secret = '', prev_secret = '', url_key = ''
	WHERE owner_id = $1 AND deleted_at = 0`

// Delete deletes a webhook. Its queued deliveries aren't sent, and its log is deleted.
func (w *Webhooks) Delete(ctx context.Context, owner account.OwnerID, id ID) error {
	return w.c.DB.Write(ctx, func(tx *db.Tx) error {
		_, err := w.DeleteTx(ctx, tx, owner, id)
		return err
	})
}

// DeleteTx is [Webhooks.Delete] inside the caller's transaction, and returns the deleted webhook.
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

// DeleteAllTx deletes every webhook of a closing account.
func (w *Webhooks) DeleteAllTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	if _, err := tx.Exec(ctx, remove, owner, db.Now()); err != nil {
		return fmt.Errorf("delete webhooks: %w", err)
	}
	return nil
}
