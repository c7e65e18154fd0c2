// Package notify owns notifications for people about failed and recovered deployments, domains and certificates. It
// sends them by email and to Slack, Discord and Microsoft Teams in each service's format.
//
// TellTx enqueues one durable job per channel in the caller's transaction: a rollback sends nothing and a crash loses
// nothing. Target URLs are secrets: they are stored encrypted, and messages go through egress. The package knows
// neither sites nor deployments; callers provide the content.
package notify

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/mail"
)

// ID names a channel: "nch_" and 26 characters.
type ID = id.Channel

// Kind is the service that receives messages.
type Kind string

const (
	Slack   Kind = "slack" // or services that accept its format, such as Mattermost
	Discord Kind = "discord"
	Teams   Kind = "teams"
	Mail    Kind = "mail" // to the account's people, or to a confirmed address
)

// Kinds lists every kind.
var Kinds = []Kind{Slack, Discord, Teams, Mail}

// The events that people are notified of.
const (
	DeploymentFailed    = "deployment.failed"
	DeploymentRecovered = "deployment.recovered"
	DomainFailed        = "domain.failed"
	CertificateFailed   = "certificate.failed"
	AppCrashed          = "application.crashed"       // several times in a row
	OutOfMemory         = "application.out_of_memory" // the first time since the program was healthy
	CronFailed          = "cron.failed"
	BackupFailed        = "backup.failed"
	UsageThreshold      = "usage.threshold" // part of a monthly limit is used
)

// Events lists every event.
var Events = []string{
	DeploymentFailed, DeploymentRecovered, DomainFailed, CertificateFailed, AppCrashed, OutOfMemory, CronFailed, BackupFailed, UsageThreshold,
}

// Channel is a target of an owner's notifications.
type Channel struct {
	ID        ID
	Owner     account.OwnerID
	Sites     []string // ordered by ID; empty: all sites
	Kind      Kind
	Name      string
	Host      string // of the target URL, which is a secret; empty for mail
	Address   string // email recipient; empty: the account's people
	Events    []string
	Active    bool
	Error     string // the service's last error; empty: the last message was accepted
	SentAt    db.Time
	CreatedAt db.Time
	UpdatedAt db.Time

	// ConfirmedAt is when the recipient of Address confirmed. 0 if not yet, or if no confirmation is needed.
	ConfirmedAt db.Time

	box string
}

// tells reports whether the channel covers a site.
func (c *Channel) tells(site id.Site) bool {
	return len(c.Sites) == 0 || slices.Contains(c.Sites, string(site))
}

// maxSites caps the sites that a channel can be limited to.
const maxSites = 100

// maxChannels caps an owner's channels.
const maxChannels = 50

// Config holds what Notifications needs.
type Config struct {
	DB   *db.DB
	Seal *seal.Sealer
	Out  *http.Client // from egress: refuses private addresses

	// Owners sends email to an owner's people. Optional: nil refuses channels of kind mail.
	Owners account.Mailer
	// Mail sends email to other addresses. Optional: nil refuses channels with an address.
	Mail *mail.Mailer
	Base string       // URL of the dashboard, without a trailing slash
	Log  *slog.Logger // Optional.
}

// Notifications is the service.
type Notifications struct {
	c Config

	now func() time.Time

	mu     sync.Mutex // guards the fields below
	minute int64      // the minute that sent covers
	// share: total the channels told of something in this minute; owner 120 messages a minute, 30 to one host; edge the message waits a minute
	sent map[place]int // messages enqueued in this minute
}

// New returns Notifications. It starts nothing: Work registers its jobs.
func New(c Config) *Notifications {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Notifications{c: c, now: time.Now}
}

const columns = `id, owner_id, site_ids, kind, name, url, events, active, error, sent_at, created_at, updated_at, confirmed_at`

func (n *Notifications) scan(r db.Scanner) (c Channel, err error) {
	var events, sites string
	err = r.Scan(&c.ID, &c.Owner, &sites, &c.Kind, &c.Name, &c.box, &events, &c.Active, &c.Error, &c.SentAt,
		&c.CreatedAt, &c.UpdatedAt, &c.ConfirmedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return c, fault.Missing("notification channel")
	}
	if err != nil {
		return c, err
	}
	c.Events, c.Sites = strings.Fields(events), strings.Fields(sites)
	if c.box != "" {
		address, err := n.open(c)
		if err != nil {
			return c, err
		}
		if c.Kind == Mail {
			c.Address = address
		} else if u, err := url.Parse(address); err == nil {
			c.Host = u.Host
		}
	}
	return c, nil
}

func (n *Notifications) open(c Channel) (string, error) {
	plain, err := n.c.Seal.Open(c.box, "notify/"+string(c.ID))
	if err != nil {
		return "", fmt.Errorf("open address of %s: %w", c.ID, err)
	}
	return string(plain), nil
}

// target returns the channel's URL or address; empty for email to the account.
func (n *Notifications) target(c Channel) (string, error) {
	if c.box == "" {
		return "", nil
	}
	return n.open(c)
}

// List returns the owner's channels, oldest first.
func (n *Notifications) List(ctx context.Context, r db.Reader, owner account.OwnerID) ([]Channel, error) {
	rows, err := r.Query(ctx, `SELECT `+columns+` FROM notify_channels WHERE owner_id = $1 ORDER BY created_at, id`, owner)
	list, err := db.Collect(rows, err, n.scan)
	if err != nil {
		return nil, fmt.Errorf("list notification channels: %w", err)
	}
	return list, nil
}

// Get returns the owner's channel, or a NotFound fault.
func (n *Notifications) Get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Channel, error) {
	return n.scan(r.QueryRow(ctx, `SELECT `+columns+` FROM notify_channels WHERE id = $1 AND owner_id = $2`, id, owner))
}

// NewChannel is a channel to create. The caller has checked that the owner owns the sites.
type NewChannel struct {
	Kind   Kind
	Name   string   // Optional: defaults to the kind.
	URL    string   // incoming webhook URL, or the address of a mail channel; empty: the account's
	By     string   // the requester's email address, shown to a mail channel's recipient. Optional otherwise.
	Sites  []string // Optional: nil means all sites.
	Events []string // Optional: nil means all events.
}

func invalid(why, details string) error {
	return fault.New(fault.Invalid, "invalid_notification", why, details)
}

func (n *Notifications) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, w NewChannel) (Channel, error) {
	if !slices.Contains(Kinds, w.Kind) {
		return Channel{}, invalid("Unknown notification channel", "kind must be slack, discord, teams or mail")
	}
	w.Name = cmp.Or(strings.TrimSpace(w.Name),
		map[Kind]string{Slack: "Slack", Discord: "Discord", Teams: "Microsoft Teams", Mail: "Email"}[w.Kind])
	if err := checkName(w.Name); err != nil {
		return Channel{}, err
	}
	if w.Events == nil {
		w.Events = Events
	}
	var err error
	if w.Sites, err = checkSites(w.Sites); err != nil {
		return Channel{}, err
	}
	if err := checkEvents(w.Events); err != nil {
		return Channel{}, err
	}
	c := Channel{ID: db.ID[ID]("nch")}
	switch {
	case w.Kind != Mail:
		if err := checkURL(w.URL); err != nil {
			return Channel{}, err
		}
	default:
		if w.URL, err = n.recipient(w.URL); err != nil {
			return Channel{}, err
		}
	}
	if w.URL != "" {
		c.box = n.c.Seal.Seal([]byte(w.URL), "notify/"+string(c.ID))
	}
	count, err := n.othersTx(ctx, tx, owner, c.ID, w.URL, w.Sites)
	if err != nil {
		return Channel{}, err
	}
	if count >= maxChannels {
		return Channel{}, fault.New(fault.Conflict, "too_many_channels", "Too many notification channels",
			fmt.Sprintf("at most %d; delete some first", maxChannels))
	}
	_, err = tx.Exec(ctx, `INSERT INTO notify_channels (`+columns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, TRUE, '', 0, $8, $8, 0)`,
		c.ID, owner, strings.Join(w.Sites, " "), w.Kind, w.Name, c.box, strings.Join(w.Events, " "), db.Now())
	if err != nil {
		return Channel{}, fmt.Errorf("make notification channel: %w", err)
	}
	if c, err = n.Get(ctx, tx, owner, c.ID); err == nil && c.Unconfirmed() {
		err = n.askTx(ctx, tx, c, w.By)
	}
	return c, err
}

// recipient validates a mail channel's address and returns it in lower case. Empty means the account's own.
func (n *Notifications) recipient(address string) (string, error) {
	if n.c.Owners == nil || !n.c.Owners.Mails() || address != "" && n.c.Mail == nil {
		return "", fault.New(fault.Conflict, "no_mail", "Email is not configured on this installation",
			"use another kind of channel, or ask the operator")
	}
	if address == "" {
		return "", nil
	}
	return account.CleanEmail(address)
}

// othersTx counts the owner's other channels. It refuses a second channel with the same target and sites.
func (n *Notifications) othersTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, own ID, to string, sites []string) (int, error) {
	list, err := n.List(ctx, tx, owner)
	if err != nil {
		return 0, err
	}
	list = slices.DeleteFunc(list, func(c Channel) bool { return c.ID == own })
	for _, other := range list {
		if has, err := n.target(other); err != nil {
			return 0, err
		} else if has == to && slices.Equal(other.Sites, sites) {
			return 0, fault.New(fault.Conflict, "target_taken", "Another channel already sends there",
				"change the events of "+string(other.ID)+" instead")
		}
	}
	return len(list), nil
}

// Patch changes the fields that aren't nil. The caller has checked that the owner owns the sites.
type Patch struct {
	Name   *string
	URL    *string   // webhook URL, or a mail channel's address; empty: the account's
	By     string    // as in NewChannel
	Sites  *[]string // pointer to nil: all sites
	Events []string
	Active *bool
}

// UpdateTx changes the owner's channel. Faults: NotFound, Invalid.
func (n *Notifications) UpdateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, p Patch) (Channel, error) {
	c, err := n.Get(ctx, tx, owner, id)
	if err != nil {
		return c, err
	}
	had := c
	if p.Name != nil {
		c.Name = strings.TrimSpace(*p.Name)
		if err := checkName(c.Name); err != nil {
			return c, err
		}
	}
	if p.Events != nil {
		if err := checkEvents(p.Events); err != nil {
			return c, err
		}
		c.Events = p.Events
	}
	if p.Active != nil {
		c.Active = *p.Active
	}
	to, err := n.target(c)
	if err != nil {
		return c, err
	}
	moved := false
	if p.URL != nil {
		next := *p.URL
		if c.Kind == Mail {
			next, err = n.recipient(next)
		} else {
			err = checkURL(next)
		}
		if err != nil {
			return c, err
		}
		moved = next != to
		if moved {
			to, c.Error, c.box, c.ConfirmedAt = next, "", "", 0
			if next != "" {
				c.box = n.c.Seal.Seal([]byte(next), "notify/"+string(c.ID))
			}
		}
	}
	if p.Sites != nil {
		if c.Sites, err = checkSites(*p.Sites); err != nil {
			return c, err
		}
	}
	elsewhere := moved || !slices.Equal(c.Sites, had.Sites)
	if elsewhere {
		if _, err := n.othersTx(ctx, tx, owner, id, to, c.Sites); err != nil {
			return c, err
		}
	}
	if !elsewhere && c.Name == had.Name && c.Active == had.Active && slices.Equal(c.Events, had.Events) {
		return had, nil
	}
	_, err = tx.Exec(
		ctx,
		`UPDATE notify_channels SET name = $2, events = $3, active = $4, updated_at = $5, url = $6, site_ids = $7, error = $8,
			confirmed_at = $9 WHERE id = $1`, id, c.Name, strings.Join(c.Events, " "), c.Active, db.Now(), c.box,
		strings.Join(c.Sites, " "), c.Error, c.ConfirmedAt,
	)
	if err != nil {
		return c, fmt.Errorf("update notification channel: %w", err)
	}
	if c, err = n.Get(ctx, tx, owner, id); err == nil && moved && c.Unconfirmed() {
		err = n.askTx(ctx, tx, c, p.By)
	}
	return c, err
}

// DeleteTx deletes the owner's channel.
func (n *Notifications) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	if _, err := n.Get(ctx, tx, owner, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM notify_channels WHERE id = $1`, id)
	return err
}

// CloseOwnerTx deletes the channels of a closing account. The count of its confirmation emails is kept for a day, so
// that closing accounts doesn't raise the limit.
func (n *Notifications) CloseOwnerTx(ctx context.Context, tx *db.Tx, owner account.OwnerID) error {
	for _, q := range []string{`DELETE FROM notify_channels WHERE owner_id = $1`, `DELETE FROM notify_refused WHERE owner_id = $1`} {
		if _, err := tx.Exec(ctx, q, owner); err != nil {
			return fmt.Errorf("remove notification channels: %w", err)
		}
	}
	return nil
}

// ForgetSiteTx deletes everything stored about a site. A channel only for that site is deleted, since without sites it
// would cover all.
func (n *Notifications) ForgetSiteTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	rows, err := tx.Query(ctx, `SELECT `+columns+` FROM notify_channels WHERE site_ids LIKE '%' || $1 || '%'`, site)
	list, err := db.Collect(rows, err, n.scan)
	if err != nil {
		return fmt.Errorf("find notification channels of a site: %w", err)
	}
	for _, c := range list {
		rest := slices.DeleteFunc(slices.Clone(c.Sites), func(s string) bool { return id.Site(s) == site })
		switch {
		case len(rest) == len(c.Sites):
		case len(rest) == 0:
			_, err = tx.Exec(ctx, `DELETE FROM notify_channels WHERE id = $1`, c.ID)
		default:
			_, err = tx.Exec(ctx, `UPDATE notify_channels SET site_ids = $2 WHERE id = $1`, c.ID, strings.Join(rest, " "))
		}
		if err != nil {
			return fmt.Errorf("forget notifications of a site: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `DELETE FROM notify_failing WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget notifications of a site: %w", err)
	}
	return nil
}

func checkName(s string) error {
	if utf8.RuneCountInString(s) > 100 || !account.Visible(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return invalid("Invalid channel name", "name has 1 to 100 characters that can be seen, none of them control characters")
	}
	return nil
}

// checkSites sorts and validates a channel's sites; nil means all.
func checkSites(list []string) ([]string, error) {
	if list != nil && len(list) == 0 || len(list) > maxSites {
		return nil, invalid("Choose at least one site", fmt.Sprintf("siteIds has 1 to %d sites; omit it for all sites", maxSites))
	}
	return slices.Compact(slices.Sorted(slices.Values(list))), nil
}

func checkEvents(list []string) error {
	if len(list) == 0 || len(list) > len(Events) {
		return invalid("Choose at least one event", "events are "+strings.Join(Events, ", "))
	}
	for _, e := range list {
		if !slices.Contains(Events, e) {
			return invalid("Unknown event", "events are "+strings.Join(Events, ", "))
		}
	}
	return nil
}

// checkURL refuses anything but a plain https URL. Its error doesn't quote the URL, which is a secret.
func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case s == "":
		return invalid("The URL is missing", "it is the address of the incoming webhook that the service gave you")
	case err != nil || len(s) > 2048 || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }):
		return invalid("Invalid URL", "url begins with https://, names a host, and has at most 2,048 characters")
	}
	return nil
}
