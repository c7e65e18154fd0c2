package site

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"

	"slipway/internal/platform/id"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
)

// Hook is a deploy hook: a POST with its ID, which is secret, deploys its site.
type Hook struct {
	ID             HookID
	Site           ID
	Owner          account.OwnerID
	Name           string
	Branch         string // empty: the site's branch
	AnyBranch      bool   // callers may choose another branch
	Title          string // default title of its deployments
	ClearCache     bool   // always build without caches
	Rules          HookRules
	Active         bool
	TriggeredAt    db.Time
	Triggered      int
	LastDeployment string
	CreatedAt      db.Time
}

// HookID is "dhk_" and 256 random bits. It is secret.
type HookID string

// String hides the secret in logs and messages.
func (HookID) String() string { return "[redacted]" }

// Reveal returns the secret for display to its owner.
func (id HookID) Reveal() string { return string(id) }

func (id HookID) digest() string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

const maxHooks = 100

// NewHook is the input of [Sites.CreateHookTx].
type NewHook struct {
	Name       string
	Branch     string // Optional: the site's branch
	AnyBranch  bool
	Title      string    // Optional.
	ClearCache bool      // Optional.
	Rules      HookRules // Optional.
}

const hookColumns = `sealed, site_id, owner_id, name, branch, any_branch, title, clear_cache, secret, addresses, expires_at,
	per_minute, per_day, active, triggered_at, triggered, last_deployment, created_at`

func (s *Sites) scanHook(row db.Scanner) (Hook, error) {
	var h Hook
	var box, secret, addresses string
	err := row.Scan(&box, &h.Site, &h.Owner, &h.Name, &h.Branch, &h.AnyBranch, &h.Title, &h.ClearCache, &secret,
		&addresses, &h.Rules.ExpiresAt, &h.Rules.PerMinute, &h.Rules.PerDay, &h.Active, &h.TriggeredAt, &h.Triggered,
		&h.LastDeployment, &h.CreatedAt)
	if errors.Is(err, sql.ErrNoRows) {
		return Hook{}, fault.Missing("deploy hook")
	}
	if err != nil {
		return Hook{}, err
	}
	id, err := s.c.Seal.Open(box, "site/"+string(h.Site)+"/hook")
	if err != nil {
		return Hook{}, fmt.Errorf("open deploy hook: %w", err)
	}
	h.ID, h.Rules.Addresses = HookID(id), splitPrefixes(addresses)
	if secret != "" {
		key, err := s.c.Seal.Open(secret, "site/"+string(h.Site)+"/hook secret")
		if err != nil {
			return Hook{}, fmt.Errorf("open deploy hook's secret: %w", err)
		}
		h.Rules.Secret = string(key)
	}
	return h, nil
}

// Hooks returns the deploy hooks of the owner's site, oldest first.
func (s *Sites) Hooks(ctx context.Context, owner account.OwnerID, id ID) ([]Hook, error) {
	if _, err := s.Get(ctx, owner, id); err != nil {
		return nil, err
	}
	rows, err := s.c.DB.Query(ctx,
		`SELECT `+hookColumns+` FROM deploy_hooks WHERE site_id = $1 AND owner_id = $2 ORDER BY created_at, digest`, id,
		owner)
	return db.Collect(rows, err, s.scanHook)
}

// CreateHookTx creates a deploy hook for the owner's site.
func (s *Sites) CreateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, n NewHook) (Hook, error) {
	if _, err := s.LockTx(ctx, tx, owner, id); err != nil {
		return Hook{}, err
	}
	name, err := checkHook(n.Name, n.Branch)
	if err == nil {
		err = checkHookRules(n.Title, n.Rules)
	}
	if err != nil {
		return Hook{}, err
	}
	var have int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM deploy_hooks WHERE site_id = $1`, id).Scan(&have); err != nil {
		return Hook{}, fmt.Errorf("count deploy hooks: %w", err)
	}
	if have >= maxHooks {
		return Hook{}, fault.New(fault.Conflict, "too_many_hooks", "The site has too many deploy hooks",
			"at most 100; delete some first")
	}
	if err := s.c.Limits.RequireTx(ctx, tx, owner, limits.Hooks, 1); err != nil {
		return Hook{}, err
	}
	h := Hook{
		ID:         newHookID(),
		Site:       id,
		Owner:      owner,
		Name:       name,
		Branch:     n.Branch,
		AnyBranch:  n.AnyBranch,
		Title:      n.Title,
		ClearCache: n.ClearCache,
		Rules:      n.Rules,
		Active:     true,
		CreatedAt:  db.Now(),
	}
	_, err = tx.Exec(
		ctx, `
		INSERT INTO deploy_hooks (digest, sealed, site_id, owner_id, name, branch, any_branch, title, clear_cache, secret,
		addresses, expires_at, per_minute, per_day,
			active, triggered_at, triggered, last_deployment, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, TRUE, 0, 0, '', $15)`, h.ID.digest(),
		s.sealHook(h.ID, id), id, owner, h.Name, h.Branch, h.AnyBranch, h.Title, h.ClearCache,
		s.sealHookSecret(h.Rules.Secret, id), joinPrefixes(h.Rules.Addresses), h.Rules.ExpiresAt, h.Rules.PerMinute,
		h.Rules.PerDay, h.CreatedAt,
	)
	if err != nil {
		return Hook{}, fmt.Errorf("insert deploy hook: %w", err)
	}
	return h, nil
}

func newHookID() HookID { return HookID("dhk_" + db.Random(32)) }

func (s *Sites) sealHook(id HookID, site ID) string {
	return s.c.Seal.Seal([]byte(id), "site/"+string(site)+"/hook")
}

func (s *Sites) sealHookSecret(secret string, site ID) string {
	if secret == "" {
		return ""
	}
	return s.c.Seal.Seal([]byte(secret), "site/"+string(site)+"/hook secret")
}

func checkHook(name, branch string) (string, error) {
	name = strings.TrimSpace(name)
	if n := utf8.RuneCountInString(name); n == 0 || n > 100 || !account.Visible(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", fault.New(fault.Invalid, "invalid_name", "The deploy hook needs a name",
			"name must have 1 to 100 characters, none of them control characters").Got(text.Clip(name, 200))
	}
	if branch == "" {
		return name, nil
	}
	return name, fetch.CheckBranch(branch)
}

// PatchHook changes the fields that aren't nil.
type PatchHook struct {
	Name      *string
	Branch    *string
	AnyBranch *bool
	Title     *string
	Clear     *bool          // ClearCache
	Secret    *string        // empty removes it
	Addresses []netip.Prefix // empty but not nil: any
	ExpiresAt *db.Time
	PerMinute *int
	PerDay    *int
	Active    *bool
	Rotate    bool // replaces the ID and invalidates the old one
}

func set[T any](to *T, v *T) {
	if v != nil {
		*to = *v
	}
}

// UpdateHookTx updates, disables, enables or rotates the owner's deploy hook.
func (s *Sites) UpdateHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id HookID, p PatchHook) (Hook, error) {
	h, err := s.ownedHook(ctx, tx, owner, id)
	if err != nil {
		return Hook{}, err
	}
	if p.Name != nil {
		h.Name = *p.Name
	}
	if p.Branch != nil {
		h.Branch = *p.Branch
	}
	if p.AnyBranch != nil {
		h.AnyBranch = *p.AnyBranch
	}
	set(&h.Title, p.Title)
	set(&h.ClearCache, p.Clear)
	set(&h.Rules.Secret, p.Secret)
	set(&h.Rules.ExpiresAt, p.ExpiresAt)
	set(&h.Rules.PerMinute, p.PerMinute)
	set(&h.Rules.PerDay, p.PerDay)
	set(&h.Active, p.Active)
	if p.Addresses != nil {
		h.Rules.Addresses = p.Addresses
	}
	if p.Rotate {
		h.ID = newHookID()
	}
	if h.Name, err = checkHook(h.Name, h.Branch); err == nil {
		err = checkHookRules(h.Title, h.Rules)
	}
	if err != nil {
		return Hook{}, err
	}
	_, err = tx.Exec(ctx, `
		UPDATE deploy_hooks SET digest = $2, sealed = $3, name = $4, branch = $5, any_branch = $6, active = $7, title = $8,
		clear_cache = $9, secret = $10, addresses = $11,
			expires_at = $12, per_minute = $13, per_day = $14 WHERE digest = $1`,
		id.digest(), h.ID.digest(), s.sealHook(h.ID,
			h.Site), h.Name, h.Branch, h.AnyBranch, h.Active, h.Title, h.ClearCache, s.sealHookSecret(h.Rules.Secret, h.Site),
		joinPrefixes(h.Rules.Addresses), h.Rules.ExpiresAt, h.Rules.PerMinute, h.Rules.PerDay)
	if err != nil {
		return Hook{}, fmt.Errorf("update deploy hook: %w", err)
	}
	return h, nil
}

// DeleteHookTx deletes the owner's deploy hook.
func (s *Sites) DeleteHookTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id HookID) error {
	if _, err := s.ownedHook(ctx, tx, owner, id); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM deploy_hooks WHERE digest = $1`, id.digest())
	return err
}

// HookSite returns the owner's site that a deploy hook belongs to.
func (s *Sites) HookSite(ctx context.Context, owner account.OwnerID, id HookID) (ID, error) {
	h, err := s.ownedHook(ctx, s.c.DB, owner, id)
	return h.Site, err
}

// OwnHook returns the owner's deploy hook, active or not.
func (s *Sites) OwnHook(ctx context.Context, r db.Reader, owner account.OwnerID, id HookID) (Hook, error) {
	return s.ownedHook(ctx, r, owner, id)
}

func (s *Sites) ownedHook(ctx context.Context, r db.Reader, owner account.OwnerID, id HookID) (Hook, error) {
	return s.scanHook(r.QueryRow(ctx, `
		SELECT `+hookColumns+` FROM deploy_hooks
		WHERE digest = $1 AND owner_id = $2 AND site_id IN (SELECT id FROM open_sites)`, id.digest(), owner))
}

// Hook returns the called deploy hook. It returns a NotFound fault for an unknown ID and Gone for a disabled hook. The
// ID is the only credential needed.
func (s *Sites) Hook(ctx context.Context, r db.Reader, id HookID) (Hook, error) {
	h, err := s.scanHook(r.QueryRow(ctx, `
		SELECT `+hookColumns+` FROM deploy_hooks
		WHERE digest = $1 AND site_id IN (SELECT id FROM open_sites)`, id.digest()))
	if err == nil && !h.Active {
		return Hook{}, fault.New(fault.Gone, "deploy_hook_disabled", "This deploy hook is disabled",
			"its owner can enable it again")
	}
	return h, err
}

// HookUsedTx records the deployment that the hook triggered.
func (s *Sites) HookUsedTx(ctx context.Context, tx *db.Tx, id HookID, deployment id.Deployment) error {
	_, err := tx.Exec(ctx, `
		UPDATE deploy_hooks SET triggered_at = $2, triggered = triggered + 1, last_deployment = $3 WHERE digest = $1`,
		id.digest(), db.Now(), deployment)
	return err
}
