// Package stripe owns the Stripe account that moves money for Billing: its keys, the calls to Stripe's API, and
// Stripe's events.
//
// Package billing owns plans, invoices and the ledger. Owners enter card data on Stripe's pages only. An event is just
// a hint: its object is fetched, and the object decides. Missing events are listed every ten minutes. The package reads
// nothing of an event but its ID, type and object ID.
package stripe

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	api "github.com/stripe/stripe-go/v85"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/seal"
	"slipway/internal/tenant/billing"
)

type Config struct {
	DB      *db.DB
	Seal    *seal.Sealer
	Billing *billing.Billing
	Out     *http.Client // from egress. Optional for commands that make no calls.
	API     string       // Optional: another API address, for tests.
	Log     *slog.Logger // Optional.
	Clock   db.Clock     // Optional: defaults to the system clock.
}

// Stripe is the service. It implements [billing.Provider] and is safe for concurrent use.
type Stripe struct {
	c   Config
	now func() db.Time

	events   *db.Batch  // stored or finished events
	fetching sync.Mutex // held while this process fetches
}

// New returns the service. It starts nothing: Work registers its jobs.
func New(c Config) *Stripe {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.API = cmp.Or(c.API, "https://api.stripe.com")
	s := &Stripe{c: c, now: db.Now, events: c.DB.NewBatch()}
	if c.Clock != nil {
		s.now = c.Clock.Now
	}
	return s
}

// Account is the connected Stripe account.
type Account struct {
	ID          string // "sta_" and 26 characters, the last part of its webhook's URL
	Live        bool   // live mode, with real money
	Secret      bool   // whether the webhook's secret is known
	ReadUntil   db.Time
	ComparedAt  db.Time
	Differences []string // between Stripe and the ledger, at the last comparison
	key         string
	secrets     []string
	differences string
}

// HookPath is the prefix of an account's webhook path.
const HookPath = "/hooks/stripe/"

const accountColumns = `id, live, api_key, secret, old_secret, read_until, compared_at, differences`

// Account returns the connected account, or a NotFound fault.
func (s *Stripe) Account(ctx context.Context, r db.Reader) (a Account, err error) {
	var key, secret, old string
	err = r.QueryRow(ctx, `SELECT `+accountColumns+` FROM stripe_accounts WHERE ended_at = 0`).Scan(&a.ID, &a.Live,
		&key, &secret, &old, &a.ReadUntil, &a.ComparedAt, &a.differences)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fault.Missing("Stripe account")
	}
	if err != nil {
		return a, fmt.Errorf("read Stripe account: %w", err)
	}
	if err := json.Unmarshal([]byte(a.differences), &a.Differences); err != nil {
		return a, fmt.Errorf("read Stripe account: %w", err)
	}
	plain, err := s.c.Seal.Open(key, "stripe key "+a.ID)
	if err != nil {
		return a, fmt.Errorf("open the key of Stripe: %w", err)
	}
	a.key = string(plain)
	for _, sealed := range []string{secret, old} {
		if sealed == "" {
			continue
		}
		plain, err := s.c.Seal.Open(sealed, "stripe secret "+a.ID)
		if err != nil {
			return a, fmt.Errorf("open the secret of Stripe's webhook: %w", err)
		}
		a.secrets = append(a.secrets, string(plain))
	}
	a.Secret = secret != ""
	return a, nil
}

// LogValue hides the keys.
func (a Account) LogValue() slog.Value { return slog.StringValue(a.ID) }

// String hides the keys.
func (a Account) String() string { return a.ID }

// ConnectTx sets the API key of the account that moves money. A key of the connected account replaces the previous key
// and keeps the webhook.
func (s *Stripe) ConnectTx(ctx context.Context, tx *db.Tx, key string) (Account, error) {
	var live bool
	key = strings.TrimSpace(key)
	switch {
	case len(key) > 300 || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		return Account{}, errKey
	case strings.HasPrefix(key, "rk_live_"), strings.HasPrefix(key, "sk_live_"):
		live = true
	case strings.HasPrefix(key, "rk_test_"), strings.HasPrefix(key, "sk_test_"):
	default:
		return Account{}, errKey
	}
	a, err := s.Account(ctx, tx)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return a, err
	}
	if err == nil && a.Live != live {
		return a, fault.New(fault.Conflict, "account_in_use", "Another account is in use",
			"test and live payments don't mix; disconnect the account first")
	}
	now := s.now()
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE stripe_accounts SET api_key = $2 WHERE id = $1`, a.ID, s.c.Seal.Seal([]byte(key), "stripe key "+a.ID))
	} else {
		a = Account{ID: db.NewID("sta"), Live: live}
		_, err = tx.Exec(ctx, `
			INSERT INTO stripe_accounts (id, live, api_key, secret, old_secret, read_until, compared_at, differences, created_at, ended_at)
			VALUES ($1, $2, $3, '', '', $4, 0, '[]', $4, 0)`, a.ID, a.Live, s.c.Seal.Seal([]byte(key), "stripe key "+a.ID), now)
	}
	if err != nil {
		return a, fmt.Errorf("write Stripe account: %w", err)
	}
	return a, nil
}

var errKey = fault.New(fault.Invalid, "invalid_api_key", "Invalid API key",
	"a restricted or secret key of Stripe begins with rk_live_, sk_live_, rk_test_ or sk_test_")

// SecretTx sets the signing secret of the account's webhook. The previous secret stays valid until the next change.
func (s *Stripe) SecretTx(ctx context.Context, tx *db.Tx, secret string) (Account, error) {
	secret = strings.TrimSpace(secret)
	if !strings.HasPrefix(secret, "whsec_") || len(secret) < 16 || len(secret) > 300 ||
		strings.ContainsFunc(secret, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Account{}, fault.New(fault.Invalid, "invalid_secret", "Invalid signing secret",
			"the signing secret of a webhook of Stripe begins with whsec_")
	}
	a, err := s.Account(ctx, tx)
	if err != nil {
		return a, err
	}
	if _, err := tx.Exec(ctx, `UPDATE stripe_accounts SET old_secret = secret, secret = $2 WHERE id = $1`,
		a.ID, s.c.Seal.Seal([]byte(secret), "stripe secret "+a.ID)); err != nil {
		return a, fmt.Errorf("write Stripe account: %w", err)
	}
	return a, nil
}

// DisconnectTx disconnects the account and deletes its keys. It refuses while payments are in progress.
func (s *Stripe) DisconnectTx(ctx context.Context, tx *db.Tx) error {
	a, err := s.Account(ctx, tx)
	if err != nil {
		return err
	}
	if open, err := s.c.Billing.Underway(ctx, tx, 1); err != nil {
		return err
	} else if len(open) > 0 {
		return fault.New(fault.Conflict, "payment_open", "A payment is under way",
			"wait for its outcome, then disconnect the account")
	}
	if _, err := tx.Exec(ctx, `UPDATE stripe_accounts SET ended_at = $2, api_key = '', secret = '', old_secret = '' WHERE id = $1`, a.ID,
		s.now()); err != nil {
		return fmt.Errorf("write Stripe account: %w", err)
	}
	return nil
}

// maxAnswer caps the bytes read from a response.
const maxAnswer = 8 << 20

// bounded limits responses to maxAnswer bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

var errOff = fault.New(fault.Conflict, "no_cards", "Cards aren't accepted here", "no account at Stripe is connected")

// client returns an API client for the connected account.
func (s *Stripe) client(ctx context.Context) (*api.Client, error) {
	a, err := s.Account(ctx, s.c.DB)
	if fault.Is(err, fault.NotFound) || s.c.Out == nil {
		return nil, errOff
	}
	if err != nil {
		return nil, err
	}
	return s.clientOf(a), nil
}

func (s *Stripe) clientOf(a Account) *api.Client {
	out := *s.c.Out
	out.Transport = bounded{out.Transport}
	off := int64(0)
	backend := api.GetBackendWithConfig(api.APIBackend, &api.BackendConfig{
		HTTPClient: &out, URL: api.String(s.c.API), MaxNetworkRetries: &off, LeveledLogger: &api.LeveledLogger{Level: api.LevelNull},
		EnableTelemetry: api.Bool(false),
	})
	return api.NewClient(a.key, api.WithBackends(&api.Backends{API: backend, Connect: backend, Uploads: backend, MeterEvents: backend}))
}
