// Package account owns users, their sessions, two-factor authentication, passkeys and API
// keys, and emails to them: who the caller is, and what they may do.
//
// Passwords are stored as argon2id (package password); keys, sessions, recovery codes and setup links as
// SHA-256 digests. The secrets themselves are shown once and never stored or logged, except
// in a queued email, which is encrypted until it is sent. A key is looked up on every
// request, so revoking it takes effect on the next one. The package defines what a Caller may
// do but doesn't check it for services: services take the owner, transports call Require.
package account

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/account/password"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/mail"
)

// Config says where accounts live.
type Config struct {
	DB    *db.DB
	Seal  *seal.Sealer // for the secrets of second factors. Optional: without it there are none.
	Log   *slog.Logger
	Mail  *mail.Mailer  // Optional: without it users get no mails, and no new password by themselves. It needs Seal and Site.
	Site  string        // the dashboard's address, to which passkeys are bound and links lead. Optional: without it there are none.
	Flush time.Duration // how often last uses are written. Optional: 0 means 10s.

	Limits *limits.Limits // Optional: without it the service's own.

	HashMemory uint32 // KiB that hashing a password takes. Optional: 0 means 19 MiB, OWASP's first choice; tests take less.
}

// Accounts is the service. It is safe for concurrent use.
type Accounts struct {
	db     *db.DB
	seal   *seal.Sealer
	mail   *mail.Mailer
	site   string
	log    *slog.Logger
	flush  time.Duration
	limits *limits.Limits
	hashes *password.Hasher

	mu sync.Mutex // guards what follows
	// share: total the API keys used since the last flush; owner its keys, which are limited; edge none: an entry is some 60 bytes
	used    map[KeyID]use
	refused []refusal
}

// New returns the accounts kept in the database.
func New(c Config) *Accounts {
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Limits.CountRows(limits.Keys, `SELECT count(*) FROM api_keys WHERE owner_id = $1`)
	return &Accounts{
		limits: c.Limits,
		db:     c.DB,
		seal:   c.Seal,
		mail:   c.Mail,
		site:   strings.TrimRight(c.Site, "/"),
		log:    cmp.Or(c.Log, slog.New(slog.DiscardHandler)),
		flush:  cmp.Or(c.Flush, 10*time.Second),
		hashes: password.New(c.HashMemory),
		used:   map[KeyID]use{},
	}
}

// LimitUse returns every limit of an owner by name.
func (a *Accounts) LimitUse(ctx context.Context, owner OwnerID) ([]limits.Use, error) {
	return a.limits.Use(ctx, a.db, owner)
}

// Run writes the last uses of keys and refused sign-ins, and drops what has expired until ctx ends, and once
// more then.
func (a *Accounts) Run(ctx context.Context) error {
	tick := time.NewTicker(a.flush)
	defer tick.Stop()
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		select {
		case <-hourly.C:
			if err := a.expire(ctx); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "expired sessions not removed, will be retried", "err", err)
			}
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			return a.write(last)
		case <-tick.C:
			if err := a.write(ctx); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "last uses and refusals not written, will be retried", "err", err)
			}
		}
	}
}

// write writes what was noted meanwhile.
func (a *Accounts) write(ctx context.Context) error {
	return errors.Join(a.writeUses(ctx), a.writeRefusals(ctx))
}
