package site

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

const (
	maxHookSecret    = 256
	maxHookAddresses = 50
	defaultPerDay    = 1000
	maxPerMinute     = 1000
	maxPerDay        = 10_000
)

// MaxHookBody is the part of a call's body passed to the build, in bytes.
const MaxHookBody = 32 << 10

// HookRules restricts the calls of a deploy hook.
type HookRules struct {
	Secret    string         // HMAC key with which callers must sign the body; empty: unsigned
	Addresses []netip.Prefix // allowed source addresses; empty: any
	ExpiresAt db.Time        // 0: never
	PerMinute int            // calls; 0: only the installation's limit
	PerDay    int            // calls; 0: 1,000
}

// Daily returns the number of calls allowed per day.
func (r HookRules) Daily() int { return cmp.Or(r.PerDay, defaultPerDay) }

func checkHookRules(title string, r HookRules) error {
	bad := func(field, details string) error {
		return fault.New(fault.Invalid, "invalid_"+field, "Invalid deploy hook "+field, details)
	}
	switch {
	case utf8.RuneCountInString(title) > 200 || strings.ContainsFunc(title, func(c rune) bool { return c < 0x20 || c == 0x7f }):
		return bad("title", "title has at most 200 characters, none of them control characters")
	case utf8.RuneCountInString(r.Secret) > maxHookSecret || strings.ContainsRune(r.Secret, 0):
		return bad("secret", "secret has at most 256 characters; an empty one removes it")
	case len(r.Addresses) > maxHookAddresses:
		return bad("addresses", "at most 50 addresses or ranges")
	case r.PerMinute < 0 || r.PerMinute > maxPerMinute:
		return bad("per_minute", "perMinute is between 1 and 1,000; 0 means the installation's limit")
	case r.PerDay < 0 || r.PerDay > maxPerDay:
		return bad("per_day", "perDay is between 1 and 10,000; 0 means 1,000")
	}
	return nil
}

func joinPrefixes(list []netip.Prefix) string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return strings.Join(out, " ")
}

func splitPrefixes(text string) (out []netip.Prefix) {
	for _, s := range strings.Fields(text) {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Admit refuses calls after the hook's expiry, from an address that isn't allowed, or with a missing or wrong
// signature: "sha256=" and the hex HMAC-SHA256 of the body, as in GitHub's X-Hub-Signature-256.
func (h Hook) Admit(from netip.Addr, body []byte, signature string) error {
	if h.Rules.ExpiresAt != 0 && h.Rules.ExpiresAt <= db.Now() {
		return fault.New(fault.Gone, "deploy_hook_expired", "This deploy hook has expired", "its owner can change its expiry")
	}
	if len(h.Rules.Addresses) > 0 {
		allowed := false
		for _, p := range h.Rules.Addresses {
			allowed = allowed || p.Contains(from.Unmap())
		}
		if !allowed {
			return fault.New(fault.Forbidden, "address_not_allowed", "The deploy hook can't be called from this IP address",
				"its owner can change the allowed addresses")
		}
	}
	if h.Rules.Secret == "" {
		return nil
	}
	m := hmac.New(sha256.New, []byte(h.Rules.Secret))
	m.Write(body)
	want := "sha256=" + hex.EncodeToString(m.Sum(nil))
	if !hmac.Equal([]byte(want), []byte(signature)) {
		why := "the signature does not match the body"
		if signature == "" {
			why = "the signature is missing"
		}
		return fault.New(fault.Unauthorized, "invalid_signature", "Invalid signature",
			why+": send X-Hub-Signature-256 with sha256= and the hex HMAC-SHA256 of the body, keyed with the hook's secret")
	}
	return nil
}

// CountHookTx counts a call. Over the hook's limits it returns a fault with the time until the next allowed call.
func (s *Sites) CountHookTx(ctx context.Context, tx *db.Tx, h Hook) error {
	now := db.Now()
	day := db.At(now.Time().UTC().Truncate(24 * time.Hour))
	var minuteAt, dayAt db.Time
	var minuteCalls, dayCalls int
	err := tx.QueryRow(ctx, `
		UPDATE deploy_hooks SET
			minute_calls = CASE WHEN minute_at > $2 THEN minute_calls + 1 ELSE 1 END, minute_at = CASE WHEN minute_at > $2 THEN minute_at
			ELSE $3 END,
			day_calls = CASE WHEN day_at = $4 THEN day_calls + 1 ELSE 1 END, day_at = $4
		WHERE digest = $1 RETURNING minute_at, minute_calls, day_at, day_calls`,
		h.ID.digest(), now.Add(-time.Minute), now, day).Scan(&minuteAt, &minuteCalls, &dayAt, &dayCalls)
	if err != nil {
		return fmt.Errorf("count call of deploy hook: %w", err)
	}
	over := func(limit int, per string, until db.Time) error {
		return &fault.Error{
			Kind:       fault.Limited,
			Message:    "Deploy hook rate limit exceeded",
			Details:    fmt.Sprintf("the limit is %d calls per %s", limit, per),
			Code:       "deploy_hook_limit",
			RetryAfter: max(until.Sub(now), time.Second),
		}
	}
	if h.Rules.PerMinute > 0 && minuteCalls > h.Rules.PerMinute {
		return over(h.Rules.PerMinute, "minute", minuteAt.Add(time.Minute))
	}
	if dayCalls > h.Rules.Daily() {
		return over(h.Rules.Daily(), "day (UTC)", dayAt.Add(24*time.Hour))
	}
	return nil
}

// SealHookBody seals the body of a hook's call for a deployment of the site.
func (s *Sites) SealHookBody(id ID, body string) string {
	if body == "" {
		return ""
	}
	return s.c.Seal.Seal([]byte(body), "site/"+string(id)+"/hook body")
}

// OpenHookBody reverses SealHookBody.
func (s *Sites) OpenHookBody(id ID, box string) (string, error) {
	if box == "" {
		return "", nil
	}
	body, err := s.c.Seal.Open(box, "site/"+string(id)+"/hook body")
	if err != nil {
		return "", fmt.Errorf("open hook body: %w", err)
	}
	return string(body), nil
}
