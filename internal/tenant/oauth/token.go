package oauth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/webhook/event"
)

// Tokens holds the answer of the token endpoint (RFC 6749 §5.1).
type Tokens struct {
	Access  string
	Refresh string
	Scopes  account.Scopes
	Expires db.Time // of the access token
}

// grantRow holds the part of a grant that tokens are issued from.
type grantRow struct {
	id      GrantID
	scopes  account.Scopes
	expires db.Time
}

// beginTx starts a grant and returns its first tokens. Of one app a person has at most maxGrants: with
// one more, the one used longest ago ends.
func (s *Server) beginTx(
	ctx context.Context,
	tx *db.Tx,
	app AppID,
	user account.UserID,
	owner account.OwnerID,
	c Consent,
	audience Audience,
) (GrantID, Tokens, error) {
	grant := db.ID[GrantID]("grt")
	now := db.Now()
	_, err := tx.Exec(ctx, `
		INSERT INTO oauth_grants (id, app_id, user_id, owner_id, scopes, sites, expires_at, created_at, used_at, used_addr, audience,
		  provider_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, '', $9, $10)`,
		grant, app, user, owner, c.Scopes.String(), id.Join(c.Sites), c.Expires, now, audience, c.through)
	if err != nil {
		return "", Tokens{}, fmt.Errorf("begin grant: %w", err)
	}
	err = s.endGrantsTx(ctx, tx, fmt.Sprintf(`id IN (
		SELECT id FROM oauth_grants WHERE user_id = $1 AND app_id = $2 ORDER BY used_at DESC, id DESC LIMIT 1000 OFFSET %d)`, maxGrants),
		user, app)
	if err != nil {
		return "", Tokens{}, err
	}
	if err := s.tellTx(ctx, tx, event.AppAuthorized, `id = $1`, grant); err != nil {
		return "", Tokens{}, err
	}
	t, err := s.issueTx(ctx, tx, grantRow{grant, c.Scopes, c.Expires}, c.Scopes, "")
	return grant, t, err
}

// maxGrants is the most that one app has of one person: devices on which they signed in to it.
const maxGrants = 50

// issueTx makes a pair of tokens. parent is the digest of the refresh token that it replaces.
func (s *Server) issueTx(ctx context.Context, tx *db.Tx, g grantRow, scopes account.Scopes, parent string) (Tokens, error) {
	now := db.Now()
	t := Tokens{
		Access: account.NewSecret(accessPrefix), Refresh: account.NewSecret(refreshPrefix),
		Scopes: scopes, Expires: min(now.Add(accessLife), g.expires),
	}
	for _, row := range []struct {
		secret, kind string
		expires      db.Time
	}{
		{t.Access, "access", t.Expires},
		{t.Refresh, "refresh", min(now.Add(refreshIdle), g.expires)},
	} {
		_, err := tx.Exec(ctx, `
			INSERT INTO oauth_tokens (hash, grant_id, kind, scopes, parent, rotated_at, next, expires_at, created_at)
			VALUES ($1, $2, $3, $4, $5, 0, '', $6, $7)`, digest(row.secret), g.id, row.kind, scopes.String(), parent, row.expires, now)
		if err != nil {
			return Tokens{}, fmt.Errorf("issue token: %w", err)
		}
	}
	return t, nil
}

// Redeem exchanges a code for tokens (RFC 6749 §4.1.3, RFC 7636 §4.5). A code works once, whatever comes
// of it; a second use ends what the first one got. resources are those that the client names, each the one that
// it asked for. The error is an *Error, or the database's.
func (s *Server) Redeem(ctx context.Context, a App, code, redirect, verifier string, resources ...string) (t Tokens, err error) {
	refused := errGrant
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		t, refused = Tokens{}, errGrant
		var app AppID
		var user account.UserID
		var owner account.OwnerID
		var scopes, sites, uri, challenge string
		var c Consent
		var expires db.Time
		var audience Audience
		err := tx.QueryRow(ctx, `
			UPDATE oauth_codes SET used_at = $2 WHERE hash = $1 AND used_at = 0
			RETURNING app_id, user_id, owner_id, scopes, sites, redirect_uri, challenge, grant_expires_at, expires_at, audience, provider_id`,
			digest(code), db.Now()).
			Scan(&app, &user, &owner, &scopes, &sites, &uri, &challenge, &c.Expires, &expires, &audience, &c.through)
		if errors.Is(err, sql.ErrNoRows) {
			return s.endReusedTx(ctx, tx, `id = (SELECT grant_id FROM oauth_codes WHERE hash = $1 AND grant_id <> '')`, digest(code),
				"authorization code")
		}
		if err != nil {
			return err
		}
		if app != a.ID || expires <= db.Now() || uri != redirect || !verifies(challenge, verifier) {
			return nil
		}
		if !s.isFor(audience, resources) {
			refused = s.errTarget()
			return nil
		}
		c.Scopes, c.Sites = splitScopes(scopes), id.Split[id.Site](sites)
		var id GrantID
		if id, t, err = s.beginTx(ctx, tx, a.ID, user, owner, c, audience); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE oauth_codes SET grant_id = $2 WHERE hash = $1`, digest(code), id); err != nil {
			return err
		}
		refused = nil
		return s.c.Accounts.AuditTx(ctx, tx, audit.Actor{User: user, Owner: owner, App: string(a.ID), Via: a.Name}, audit.Event{
			Action: "app.authorized", Subject: string(id), Detail: a.Name + " (" + c.Scopes.String() + ")",
		})
	})
	return outcome(t, refused, err, "redeem code")
}

// outcome tells the client's errors from ours.
func outcome(t Tokens, refused *Error, err error, doing string) (Tokens, error) {
	switch {
	case fault.As(err) != nil: // whoever consented is suspended or gone
		return Tokens{}, errGrant
	case err != nil:
		return Tokens{}, fmt.Errorf("%s: %w", doing, err)
	case refused != nil:
		return Tokens{}, refused
	}
	return t, nil
}

// verifies reports whether a verifier belongs to a challenge of S256 (RFC 7636 §4.6).
func verifies(challenge, verifier string) bool {
	if len(verifier) < 43 || len(verifier) > 128 || !isUnreserved(verifier) {
		return false
	}
	sum := sha256.Sum256([]byte(verifier))
	return subtle.ConstantTimeCompare([]byte(base64.RawURLEncoding.EncodeToString(sum[:])), []byte(challenge)) == 1
}

const nextPurpose = "oauth rotation"

// Refresh exchanges a refresh token for the next pair (RFC 6749 §6, RFC 9700 §4.14.2). Whoever asks
// again within a minute, because the answer was lost or in two processes at once, gets the same pair;
// later, or once the next token was used, the token was stolen by somebody: the grant ends, and its
// person is told. scope may narrow the access token; resources are those of Redeem. The error is an *Error, or the database's.
func (s *Server) Refresh(ctx context.Context, a App, token, scope string, resources ...string) (t Tokens, err error) {
	var refused *Error
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		t, refused = Tokens{}, errGrant
		hash := digest(token)
		var g grantRow
		var app AppID
		var scopes, next string
		var rotated, expires db.Time
		var audience Audience
		// The update that changes nothing takes the row's lock, so that two at once wait for each other.
		err := tx.QueryRow(ctx, `
			UPDATE oauth_tokens SET kind = kind WHERE hash = $1 AND kind = 'refresh'
			RETURNING grant_id, rotated_at, next, expires_at`, hash).Scan(&g.id, &rotated, &next, &expires)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `SELECT app_id, scopes, expires_at, audience FROM oauth_grants WHERE id = $1`, g.id).
			Scan(&app, &scopes, &g.expires, &audience)
		if err != nil {
			return err
		}
		now := db.Now()
		g.scopes = splitScopes(scopes)
		if app != a.ID || min(expires, g.expires) <= now {
			return nil
		}
		if !s.isFor(audience, resources) {
			refused = s.errTarget()
			return nil
		}
		if rotated != 0 {
			if t, err = s.againTx(ctx, tx, hash, next, rotated); err != nil || t.Access != "" {
				refused = nil
				return err
			}
			return s.endReusedTx(ctx, tx, `id = $1`, string(g.id), "refresh token")
		}
		narrowed := g.scopes
		if scope != "" {
			narrowed = nil
			for name := range strings.FieldsSeq(scope) {
				if !slices.Contains(g.scopes, account.Scope(name)) {
					refused = bad("invalid_scope", "scope must not be wider than what was granted")
					return nil
				}
				narrowed = append(narrowed, account.Scope(name))
			}
		}
		if t, err = s.issueTx(ctx, tx, g, narrowed, hash); err != nil {
			return err
		}
		kept, err := json.Marshal(t)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE oauth_tokens SET rotated_at = $2, next = $3 WHERE hash = $1`, hash, now, s.c.Seal.Seal(kept, nextPurpose))
		if err != nil {
			return err
		}
		// What it was made from is over now, so the pair before it can't be had any more.
		_, err = tx.Exec(ctx, `
			UPDATE oauth_tokens SET next = '' WHERE hash = (SELECT parent FROM oauth_tokens WHERE hash = $1) AND next <> ''`, hash)
		refused = nil
		return err
	})
	return outcome(t, refused, err, "refresh tokens")
}

// againTx returns the pair that a rotated token got, as long as it may have been lost: for a minute,
// and until the pair was used itself.
func (s *Server) againTx(ctx context.Context, tx *db.Tx, hash, next string, rotated db.Time) (t Tokens, err error) {
	if db.Now().Sub(rotated) > retryGrace || next == "" {
		return Tokens{}, nil
	}
	var used bool
	err = tx.QueryRow(ctx, `SELECT COUNT(*) > 0 FROM oauth_tokens WHERE parent = $1 AND kind = 'refresh' AND rotated_at > 0`, hash).Scan(&used)
	if err != nil || used {
		return Tokens{}, err
	}
	b, err := s.c.Seal.Open(next, nextPurpose)
	if err != nil {
		return Tokens{}, fmt.Errorf("open rotated tokens: %w", err)
	}
	return t, json.Unmarshal(b, &t)
}

// endReusedTx ends the grant of a secret that somebody used a second time, and tells its person.
func (s *Server) endReusedTx(ctx context.Context, tx *db.Tx, where, arg, what string) error {
	var g Grant
	err := tx.QueryRow(ctx, `
		SELECT id, app_id, user_id, owner_id, (SELECT name FROM oauth_apps a WHERE a.id = app_id) FROM oauth_grants WHERE `+where, arg).
		Scan(&g.ID, &g.App, &g.User, &g.Owner, &g.AppName)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.endGrantsTx(ctx, tx, `id = $1`, g.ID); err != nil {
		return err
	}
	s.c.Log.WarnContext(ctx, "grant ended: a secret of it was used twice", "grant", g.ID, "app", g.App, "what", what)
	err = s.c.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: g.Owner, App: string(g.App), Via: g.AppName}, audit.Event{
		Action: "app.reuse_detected", Subject: string(g.ID), Detail: "a used " + what + " was sent again; access revoked", About: g.User,
	})
	if err != nil {
		return err
	}
	return s.c.Accounts.TellOwnerTx(ctx, tx, g.Owner, "Access of "+g.AppName+" revoked",
		"A "+what+" of "+g.AppName+" was used a second time, so it may have been stolen. Slipway revoked the app's access. "+
			"Authorize the app again if you still use it.", "/account/apps")
}

// errToken is the one error for every invalid access token, so that nobody learns why (RFC 6750 §3.1).
var errToken = fault.New(fault.Unauthorized, "invalid_token", "Invalid access token",
	"the token is expired, revoked or unknown; refresh it or ask for authorization again")

// Authenticate returns who holds this access token. An unknown, expired or revoked one, one of a disabled
// app or of a suspended user, is an Unauthorized fault.
func (s *Server) Authenticate(ctx context.Context, token string, addr netip.Addr) (account.Caller, error) {
	return s.AuthenticateFor(ctx, ForAPI, token, addr)
}

// AuthenticateFor is Authenticate at a resource: a token for another one is an Unauthorized fault. The command line's
// are for both, since the person who signed in there is the one who uses either.
func (s *Server) AuthenticateFor(ctx context.Context, at Audience, token string, addr netip.Addr) (account.Caller, error) {
	if !LooksLikeToken(token) {
		return account.Caller{}, errToken
	}
	var c account.Caller
	var grant GrantID
	var app AppID
	var name, scopes, sites, policy string
	var disabled, suspended db.Time
	var personal, approved bool
	var audience Audience
	err := s.c.DB.QueryRow(ctx, `
		SELECT g.id, g.app_id, a.name, t.scopes, g.sites, g.owner_id, t.expires_at, a.disabled_at, u.id, u.email, u.suspended_at,
		  g.owner_id = u.owner_id, COALESCE(p.apps, ''),
		  COALESCE(p.apps, '') = 'approved' AND EXISTS (
		    SELECT 1 FROM oauth_approvals y WHERE y.owner_id = g.owner_id AND y.app_id = g.app_id AND y.approved_by <> ''), g.audience,
		  g.provider_id
		FROM oauth_tokens t JOIN oauth_grants g ON g.id = t.grant_id JOIN oauth_apps a ON a.id = g.app_id JOIN people u ON u.id = g.user_id
		  LEFT JOIN app_policies p ON p.owner_id = g.owner_id
		WHERE t.hash = $1 AND t.kind = 'access'`, digest(token)).
		Scan(&grant, &app, &name, &scopes, &sites, &c.Owner, &c.Expires, &disabled, &c.User, &c.Email, &suspended, &personal, &policy, &approved,
			&audience, &c.Through)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (c.Expires <= db.Now() || disabled != 0 || suspended != 0) {
		return account.Caller{}, errToken
	}
	if err != nil {
		return account.Caller{}, fmt.Errorf("authenticate token: %w", err)
	}
	if audience != at && app != CLI {
		return account.Caller{}, errAudience
	}
	c.Scopes, c.Sites = splitScopes(scopes), id.Split[id.Site](sites)
	c.Grant, c.App, c.Via = string(grant), string(app), name
	if !personal {
		if err := permits(policy, approved, app); err != nil {
			return account.Caller{}, err
		}
		if err := s.c.Accounts.Narrow(ctx, &c); err != nil {
			return account.Caller{}, err
		}
	}
	s.note(grant, addr)
	return c, nil
}

// Holds is nil while the grant that a caller came with is there, and the user has the role that they had: for answers that stay open, and
// requests that take long to come. The access token itself may have expired meanwhile.
func (s *Server) Holds(ctx context.Context, c account.Caller) error {
	var ok bool
	err := s.c.DB.QueryRow(ctx, `
		SELECT g.expires_at > $2 AND a.disabled_at = 0 AND u.suspended_at = 0
		FROM oauth_grants g JOIN oauth_apps a ON a.id = g.app_id JOIN people u ON u.id = g.user_id WHERE g.id = $1`, c.Grant, db.Now()).Scan(&ok)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !ok {
		return errToken
	}
	if err != nil {
		return fmt.Errorf("check grant again: %w", err)
	}
	if c.Team != "" {
		if err := s.allowed(ctx, s.c.DB, c.Owner, AppID(c.App)); err != nil {
			return err
		}
	}
	return s.c.Accounts.Holds(ctx, c)
}

// HoldTx locks the grant of a caller's app, so that its revocation waits until the transaction ends and finds what the app made
// in it, or is an Unauthorized fault once it was revoked.
func (s *Server) HoldTx(ctx context.Context, tx *db.Tx, by account.Caller) error {
	n, err := tx.Exec(ctx, `UPDATE oauth_grants SET id = id WHERE id = $1`, by.Grant)
	if err != nil {
		return fmt.Errorf("hold grant: %w", err)
	}
	if n == 0 {
		return errToken
	}
	return nil
}

func splitScopes(text string) (out account.Scopes) {
	for n := range strings.FieldsSeq(text) {
		out = append(out, account.Scope(n))
	}
	return out
}

// Introspection describes a token to its own app (RFC 7662 §2.2).
type Introspection struct {
	Active   bool
	Scopes   account.Scopes
	User     account.UserID
	Owner    account.OwnerID
	Kind     string // access or refresh
	Expires  db.Time
	Issued   db.Time
	Audience Audience
}

// Introspect describes a token of this app; any other is not active.
func (s *Server) Introspect(ctx context.Context, a App, token string) (Introspection, error) {
	var i Introspection
	var scopes string
	var rotated, suspended db.Time
	err := s.c.DB.QueryRow(ctx, `
		SELECT t.kind, t.scopes, t.expires_at, t.created_at, t.rotated_at, g.user_id, g.owner_id, u.suspended_at, g.audience
		FROM oauth_tokens t JOIN oauth_grants g ON g.id = t.grant_id JOIN people u ON u.id = g.user_id
		WHERE t.hash = $1 AND g.app_id = $2`, digest(token), a.ID).
		Scan(&i.Kind, &scopes, &i.Expires, &i.Issued, &rotated, &i.User, &i.Owner, &suspended, &i.Audience)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (i.Expires <= db.Now() || rotated != 0 || suspended != 0) {
		return Introspection{}, nil
	}
	if err != nil {
		return Introspection{}, fmt.Errorf("introspect token: %w", err)
	}
	i.Active, i.Scopes = true, splitScopes(scopes)
	return i, nil
}

// Revoke ends the grant that a token of this app belongs to (RFC 7009 §2.1): with one token of it all are
// gone. A token that is unknown, or another app's, is no error.
func (s *Server) Revoke(ctx context.Context, a App, token string) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		var g Grant
		err := tx.QueryRow(ctx, `
			SELECT g.id, g.user_id, g.owner_id FROM oauth_tokens t JOIN oauth_grants g ON g.id = t.grant_id
			WHERE t.hash = $1 AND g.app_id = $2`, digest(token), a.ID).Scan(&g.ID, &g.User, &g.Owner)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.endGrantsTx(ctx, tx, `id = $1`, g.ID); err != nil {
			return err
		}
		return s.c.Accounts.AuditTx(ctx, tx, audit.Actor{Owner: g.Owner, App: string(a.ID), Via: a.Name}, audit.Event{
			Action: "app.revoked", Subject: string(g.ID), Detail: a.Name + " gave its access back", About: g.User,
		})
	})
}
