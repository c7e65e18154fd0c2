package site

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/webhook/event"
)

// Serving holds the settings for answering a site's requests.
type Serving struct {
	ProxyHosts []string `json:"proxyHosts,omitempty"` // hosts to which rules may forward requests
	Protection string   `json:"protection,omitempty"` // none, previews or all: the addresses that require the password
	Hash       string   `json:"hash,omitempty"`       // of the password
	// none, previews or all: the addresses that members may open by signing in; others need the password.
	SignIn string `json:"signIn,omitempty"`

	AccessLog     string `json:"accessLog,omitempty"`     // truncated, no-addresses or off: content of the access log
	SinglePage    string `json:"singlePage,omitempty"`    // auto, on or off: whether index.html answers paths without a file
	TrailingSlash string `json:"trailingSlash,omitempty"` // auto, always or never: whether page URLs end in a slash
}

// Allowed values of the settings, the default first.
var (
	signIns         = []string{"none", "previews", "all"}
	accessLogs      = []string{"truncated", "no-addresses", "off"}
	singlePages     = []string{"auto", "on", "off"}
	trailingSlashes = []string{"auto", "always", "never"}
)

// ServingPatch changes the fields that aren't nil.
type ServingPatch struct {
	ProxyHosts *[]string
	Protection *string
	Password   *string

	SignIn, AccessLog, SinglePage, TrailingSlash *string
}

const (
	maxProxyHosts  = 20
	passwordRounds = 210_000 // PBKDF2-SHA-256, about 50 ms
)

// Serving returns the owner's settings.
func (s *Sites) Serving(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Serving, error) {
	if _, err := s.get(ctx, r, owner, id); err != nil {
		return Serving{}, err
	}
	return s.ServingOf(ctx, r, id)
}

// ServingOf returns a site's settings, whoever owns it.
func (s *Sites) ServingOf(ctx context.Context, r db.Reader, id ID) (Serving, error) {
	v := Serving{
		Protection:    "none",
		SignIn:        signIns[0],
		AccessLog:     accessLogs[0],
		SinglePage:    singlePages[0],
		TrailingSlash: trailingSlashes[0],
	}
	var text string
	err := r.QueryRow(ctx, `SELECT settings FROM site_serving WHERE site_id = $1`, id).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return v, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &v)
	}
	if err != nil {
		return v, fmt.Errorf("read serving settings of %s: %w", id, err)
	}
	return v, nil
}

// HashPassword hashes a visitors' password. It takes tens of milliseconds, so it doesn't belong in a transaction.
func HashPassword(password string) (string, error) {
	if n := len(password); n < 8 || n > 200 {
		return "", fault.New(fault.Invalid, "invalid_password", "Invalid password", "password must have 8 to 200 characters")
	}
	salt := make([]byte, 16)
	rand.Read(salt)
	key, err := pbkdf2.Key(sha256.New, password, salt, passwordRounds, 32)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return fmt.Sprintf("pbkdf2-sha256$%d$%x$%x", passwordRounds, salt, key), nil
}

// PasswordHash returns the hash to store for the owner's site. If the password is unchanged, it returns the stored
// hash, so that setting it again changes nothing.
func (s *Sites) PasswordHash(ctx context.Context, owner account.OwnerID, id ID, password string) (string, error) {
	if v, err := s.Serving(ctx, s.c.DB, owner, id); err == nil && VerifyPassword(v.Hash, password) {
		return v.Hash, nil
	}
	return HashPassword(password)
}

// VerifyPassword reports whether the hash is of the password.
func VerifyPassword(hash, password string) bool {
	parts := strings.Split(hash, "$")
	if len(parts) != 4 || parts[0] != "pbkdf2-sha256" || len(password) > 200 {
		return false
	}
	rounds, err := strconv.Atoi(parts[1])
	salt, err2 := hex.DecodeString(parts[2])
	want, err3 := hex.DecodeString(parts[3])
	if errors.Join(err, err2, err3) != nil || rounds < 1 || rounds > 10_000_000 {
		return false
	}
	got, err := pbkdf2.Key(sha256.New, password, salt, rounds, len(want))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1
}

// UpdateServingTx changes the settings of the owner's site. hash is the hash of the patch's password. A change applies
// within a second, without a deployment. A patch without changes writes nothing and emits no event.
func (s *Sites) UpdateServingTx(
	ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, p ServingPatch, hash string,
) (Serving, error) {
	site, err := s.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Serving{}, err
	}
	v, err := s.ServingOf(ctx, tx, id)
	if err != nil {
		return v, err
	}
	before := v
	if p.ProxyHosts != nil {
		if v.ProxyHosts, err = proxyHosts(*p.ProxyHosts); err != nil {
			return v, err
		}
	}
	if p.Password != nil {
		v.Hash = hash
	}
	if p.Protection != nil {
		if !slices.Contains([]string{"none", "previews", "all"}, *p.Protection) {
			return v, fault.New(fault.Invalid, "invalid_protection", "Invalid protection",
				"protection must be none, previews or all").Got(*p.Protection)
		}
		v.Protection = *p.Protection
	}
	if v.Protection != "none" && v.Hash == "" {
		return v, fault.New(fault.Invalid, "invalid_password", "Password required",
			"protection needs a password; send password with it")
	}
	for _, word := range []struct {
		name    string
		to      *string
		given   *string
		allowed []string
	}{
		{"signIn", &v.SignIn, p.SignIn, signIns},
		{"accessLog", &v.AccessLog, p.AccessLog, accessLogs},
		{"singlePage", &v.SinglePage, p.SinglePage, singlePages},
		{"trailingSlash", &v.TrailingSlash, p.TrailingSlash, trailingSlashes},
	} {
		if word.given == nil {
			continue
		}
		if !slices.Contains(word.allowed, *word.given) {
			return v, fault.New(fault.Invalid, "invalid_"+snake(word.name), "Invalid "+word.name,
				word.name+" must be "+strings.Join(word.allowed[:2], ", ")+" or "+word.allowed[2]).Got(*word.given)
		}
		*word.to = *word.given
	}
	same := before
	same.ProxyHosts = v.ProxyHosts
	if reflect.DeepEqual(same, v) && slices.Equal(before.ProxyHosts, v.ProxyHosts) {
		return v, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	if _, err = tx.Exec(ctx, `
		INSERT INTO site_serving (site_id, settings) VALUES ($1, $2)
		ON CONFLICT (site_id) DO UPDATE SET settings = excluded.settings`, id, string(text)); err != nil {
		return v, fmt.Errorf("update serving settings: %w", err)
	}
	bump(tx, owner, id)
	if _, err := tx.Exec(ctx, `UPDATE sites SET updated_at = $2 WHERE id = $1`, id, db.Now()); err != nil {
		return v, fmt.Errorf("update serving settings: %w", err)
	}
	return v, s.c.Hooks.EmitTx(ctx, tx, owner, event.SiteUpdated(s.Ref(site), "serving"))
}

// snake converts a field's name to snake_case for error codes.
func snake(name string) string {
	var b strings.Builder
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// hostForm matches a name of at least two labels (RFC 1123 §2.1) or an IPv4 address.
var hostForm = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)+$`)

func proxyHosts(list []string) ([]string, error) {
	if len(list) > maxProxyHosts {
		return nil, fault.New(fault.Invalid, "invalid_proxy_hosts", "Too many proxy hosts",
			fmt.Sprintf("proxyHosts may have at most %d", maxProxyHosts))
	}
	out := []string{}
	for _, h := range list {
		h = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(h)), ".")
		name := h
		if host, port, err := net.SplitHostPort(h); err == nil {
			n, err := strconv.Atoi(port)
			name = host
			if err != nil || n < 1 || n > 65535 {
				name = ""
			}
		}
		if len(name) > 253 || !hostForm.MatchString(name) {
			return nil, fault.New(fault.Invalid, "invalid_proxy_hosts", "Invalid proxy host",
				"proxyHosts are names such as api.example.com, with a port where it isn't 443 or 80").Got(h)
		}
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out, nil
}
