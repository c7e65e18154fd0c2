package account

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/audit"
)

// Session is one sign-in of one user on one device.
type Session struct {
	ID        SessionID
	User      UserID
	Method    Method
	Provider  string  // that it was begun with (package sso); empty: none
	Only      OwnerID // the team whose provider that is: the session opens nothing else; empty: all that is the user's
	Pending   bool    // the second factor is still owed: it opens nothing but the page that asks for it
	Agent     string  // the browser's User-Agent, as it was sent
	Addr      string  // of the last use
	CreatedAt db.Time
	ProvenAt  db.Time // when its holder last proved who they are
	SeenAt    db.Time // to the minute
	ExpiresAt db.Time // whatever happens; earlier when it is not used for Idle
}

// Method says how somebody proved who they are.
type Method string

// The methods.
const (
	BySetup    Method = "setup"
	ByPassword Method = "password"
	ByTOTP     Method = "totp" // after the password
	ByRecovery Method = "recovery"
	ByPasskey  Method = "passkey"
	BySSO      Method = "sso" // an account at a provider, which Session.Provider names
)

// Strong reports whether it took more than a password, a link or a provider's word: a second factor, or a passkey.
func (m Method) Strong() bool { return m == ByTOTP || m == ByRecovery || m == ByPasskey }

// How long sessions last: unused, whatever happens, and while the second factor is owed.
const (
	Idle        = 14 * 24 * time.Hour
	Lifetime    = 90 * 24 * time.Hour
	pendingLife = 10 * time.Minute
)

// Fresh is how long after a proof of who they are somebody may change what lets them in.
const Fresh = 15 * time.Minute

// maxSessions is the most a user has; with one more the one used longest ago ends.
const maxSessions = 100

// Fresh reports whether its holder proved who they are a short while ago.
func (s Session) Fresh() bool { return db.Now().Sub(s.ProvenAt) < Fresh }

// Device is where a request comes from.
type Device struct {
	Agent string // the User-Agent header; what is over 400 characters is cut
	Addr  netip.Addr
}

var errSession = fault.New(fault.Unauthorized, "signed_out", "You are signed out", "sign in again")

const sessionColumns = `s.id, s.user_id, s.method, s.provider_id, s.pending, s.agent, s.addr, s.created_at, s.proven_at,
	s.seen_at, s.expires_at, COALESCE((SELECT p.owner_id FROM sign_in_providers p WHERE p.id = s.provider_id), '')`

// provided is the condition of sessions whose provider, where they began with one, is still there.
const provided = `(s.provider_id = '' OR EXISTS (SELECT 1 FROM sign_in_providers p WHERE p.id = s.provider_id))`

func sessionFields(s *Session) []any {
	return []any{
		&s.ID, &s.User, &s.Method, &s.Provider, &s.Pending, &s.Agent, &s.Addr, &s.CreatedAt, &s.ProvenAt, &s.SeenAt, &s.ExpiresAt,
		&s.Only,
	}
}

// SignIn checks a password and begins a session. Where the user has a second factor the
// session is Pending, and PassFactor completes it. What is wrong is one Unauthorized
// fault, and only the right password learns that the user is suspended (Forbidden);
// throttling is the caller's.
func (a *Accounts) SignIn(ctx context.Context, email, password string, d Device) (Session, string, error) {
	u, phc, err := a.checkPassword(ctx, email, password)
	if fault.Is(err, fault.Unauthorized) {
		if u, err := a.UserByEmail(ctx, email); err == nil {
			a.noteRefusal(u.ID, d, "wrong password")
		}
	}
	if err != nil {
		return Session{}, "", err
	}
	var s Session
	var token string
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if err := holdPassword(ctx, tx, u.ID, phc); err != nil {
			return err
		}
		owed, err := confirmed(ctx, tx, u.ID)
		if err != nil {
			return err
		}
		s, token, err = a.beginTx(ctx, tx, u.ID, begun{method: ByPassword, pending: owed}, d)
		return err
	})
	if fault.Is(err, fault.Forbidden) {
		a.noteRefusal(u.ID, d, "right password, but the account is suspended")
	}
	return s, token, err
}

// SetUp uses a setup link and signs its holder in. The second factor, where there is
// one, is still owed.
func (a *Accounts) SetUp(ctx context.Context, link, email, password string, d Device) (s Session, token string, err error) {
	_, err = a.useSetupLink(ctx, link, email, password, func(tx *db.Tx, u User, mailed bool) error {
		owed, err := confirmed(ctx, tx, u.ID)
		if err != nil {
			return err
		}
		how := "by a one-time link"
		if mailed {
			how += " that was mailed to them"
		}
		if err := a.AuditTx(ctx, tx, audit.Actor{
			User: u.ID,
			Addr: d.Addr,
		}, audit.Event{Action: "password.set", Subject: string(u.ID), Detail: how}); err != nil {
			return err
		}
		if u.Password { // this is not their first one
			if err := a.tellOfPassword(ctx, tx, u, d); err != nil {
				return err
			}
		}
		s, token, err = a.beginTx(ctx, tx, u.ID, begun{method: BySetup, pending: owed}, d)
		return err
	})
	return s, token, err
}

// ChangePassword replaces the session user's password. Every session ends; the one
// returned takes the place of s.
func (a *Accounts) ChangePassword(ctx context.Context, s Session, old, password string, d Device) (next Session, token string, err error) {
	u, err := a.User(ctx, s.User)
	if err != nil {
		return next, "", err
	}
	_, was, err := a.checkPassword(ctx, u.Email, old)
	if err != nil {
		return next, "", err
	}
	phc, err := a.hashes.Hash(ctx, u.Email, password)
	if err != nil {
		return next, "", err
	}
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		if err := HoldTx(ctx, tx, audit.Actor{User: u.ID, Session: s.ID}); err != nil {
			return err
		}
		if err := holdPassword(ctx, tx, u.ID, was); err != nil {
			return err
		}
		if err := setPassword(ctx, tx, u.ID, phc); err != nil {
			return err
		}
		if err := a.AuditTx(ctx, tx, audit.Actor{
			User:    u.ID,
			Session: s.ID,
			Addr:    d.Addr,
		}, audit.Event{Action: "password.changed", Subject: string(u.ID)}); err != nil {
			return err
		}
		if err := a.tellOfPassword(ctx, tx, u, d); err != nil {
			return err
		}
		next, token, err = a.beginTx(ctx, tx, u.ID, begun{method: s.Method, provider: s.Provider}, d)
		return err
	})
	return next, token, err
}

// begun says how a session begins.
type begun struct {
	method   Method
	provider string // that vouched for its user; empty: none
	passkey  PasskeyID
	pending  bool // the second factor is still owed
}

// beginTx writes a session and its line in the log, and returns the token, which is not
// stored. Every way in ends here, so this is where a suspended user hears of it. Who ends all sessions of the user at this moment, as
// a new password does, comes before, or finds this one.
func (a *Accounts) beginTx(ctx context.Context, tx *db.Tx, user UserID, b begun, d Device) (Session, string, error) {
	if err := LockUserTx(ctx, tx, user); err != nil {
		return Session{}, "", err
	}
	if err := stands(ctx, tx, user, fault.Forbidden); err != nil {
		return Session{}, "", err
	}
	var random [32]byte
	rand.Read(random[:])
	token := base64.RawURLEncoding.EncodeToString(random[:])
	now := db.Now()
	life := Lifetime
	if b.pending {
		life = pendingLife
	}
	s := Session{
		ID: db.ID[SessionID]("ses"), User: user, Method: b.method, Provider: b.provider, Pending: b.pending,
		Agent: text.Cut(d.Agent, 400), Addr: d.Addr.String(),
		CreatedAt: now, ProvenAt: now, SeenAt: now, ExpiresAt: now.Add(life),
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO sessions
			(hash, id, user_id, method, pending, agent, addr, created_at, proven_at, seen_at, expires_at, provider_id, passkey_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $8, $9, $10, $11)`,
		digest(token), s.ID, user, s.Method, s.Pending, s.Agent, s.Addr, now, s.ExpiresAt, s.Provider, b.passkey)
	if err != nil {
		return Session{}, "", fmt.Errorf("begin session: %w", err)
	}
	_, err = tx.Exec(ctx, `
		DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions WHERE user_id = $1 ORDER BY seen_at DESC, id DESC LIMIT 1000 OFFSET $2)`,
		user, maxSessions)
	if err != nil {
		return Session{}, "", fmt.Errorf("end oldest session: %w", err)
	}
	if s.Pending {
		return s, token, nil
	}
	return s, token, a.AuditTx(ctx, tx, audit.Actor{
		User:    user,
		Session: s.ID,
		Addr:    d.Addr,
	}, audit.Event{Action: "session.started", Subject: string(s.ID), Detail: s.how()})
}

// how says how a session began, for the audit log.
func (s Session) how() string {
	if s.Provider != "" {
		return "by " + string(s.Method) + " with " + s.Provider
	}
	return "by " + string(s.Method)
}

// Session returns who holds this token, or one Unauthorized fault: it is unknown, was
// ended, is too old, was not used for Idle, its provider is gone, or its user is suspended. Of a session that opens a team
// alone, the user is no operator. The use is noted, to the minute.
func (a *Accounts) Session(ctx context.Context, token string, d Device) (Session, User, error) {
	if len(token) != base64.RawURLEncoding.EncodedLen(32) {
		return Session{}, User{}, errSession
	}
	var s Session
	var u User
	now := db.Now()
	err := a.db.QueryRow(ctx, `
		SELECT `+sessionColumns+`, `+userColumns+`
		FROM sessions s JOIN users ON users.id = s.user_id
		WHERE s.hash = $1 AND s.expires_at > $2 AND s.seen_at > $3 AND users.suspended_at = 0 AND `+provided, digest(token), now, now.Add(-Idle)).
		Scan(append(sessionFields(&s), userFields(&u)...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return Session{}, User{}, errSession
	}
	if err != nil {
		return Session{}, User{}, fmt.Errorf("find session: %w", err)
	}
	u.Admin = u.Admin && s.Only == ""
	addr := d.Addr.String()
	if now.Sub(s.SeenAt) < time.Minute && s.Addr == addr {
		return s, u, nil
	}
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE sessions SET seen_at = $2, addr = $3 WHERE id = $1`, s.ID, now, addr)
		return err
	})
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "use of session not noted", "session", s.ID, "err", err)
	}
	s.SeenAt, s.Addr = now, addr
	return s, u, nil
}

// Prove notes that the session's holder knows the password, so that the session is Fresh
// again. A wrong one is an Unauthorized fault.
func (a *Accounts) Prove(ctx context.Context, s Session, password string) error {
	u, err := a.User(ctx, s.User)
	if err != nil {
		return err
	}
	if _, err := a.CheckPassword(ctx, u.Email, password); err != nil {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE sessions SET proven_at = $2 WHERE id = $1`, s.ID, db.Now())
		return err
	})
}

// OpenSession returns a user's session by its id, or an Unauthorized fault once it has ended. The use is not noted.
func (a *Accounts) OpenSession(ctx context.Context, user UserID, id SessionID) (s Session, err error) {
	now := db.Now()
	err = a.db.QueryRow(ctx, `
		SELECT `+sessionColumns+` FROM sessions s
		WHERE s.id = $1 AND s.user_id = $2 AND NOT s.pending AND s.expires_at > $3 AND s.seen_at > $4 AND `+provided,
		id, user, now, now.Add(-Idle)).Scan(sessionFields(&s)...)
	if errors.Is(err, sql.ErrNoRows) {
		return s, errSession
	}
	if err != nil {
		return s, fmt.Errorf("find session: %w", err)
	}
	return s, nil
}

// Sessions returns where the owner is signed in, the last used first.
func (a *Accounts) Sessions(ctx context.Context, owner UserID) ([]Session, error) {
	now := db.Now()
	rows, err := a.db.Query(ctx, `
		SELECT `+sessionColumns+` FROM sessions s
		WHERE s.user_id = $1 AND NOT s.pending AND s.expires_at > $2 AND s.seen_at > $3 AND `+provided+`
		ORDER BY s.seen_at DESC, s.id DESC`, owner, now, now.Add(-Idle))
	list, err := db.Collect(rows, err, func(row db.Scanner) (s Session, err error) { return s, row.Scan(sessionFields(&s)...) })
	if err != nil {
		return nil, fmt.Errorf("list sessions: %w", err)
	}
	return list, nil
}

// SignedInFrom reports whether somebody with this address is signed in from an address
// that matches. An unknown user is not.
func (a *Accounts) SignedInFrom(ctx context.Context, email string, match func(netip.Addr) bool) (bool, error) {
	u, err := a.UserByEmail(ctx, email)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	list, err := a.Sessions(ctx, u.ID)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(s Session) bool {
		addr, err := netip.ParseAddr(s.Addr)
		return err == nil && match(addr)
	}), nil
}

// EndSessionTx signs the owner out on one device, or is a NotFound fault.
func (a *Accounts) EndSessionTx(ctx context.Context, tx *db.Tx, owner UserID, id SessionID) error {
	n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id = $2`, owner, id)
	if err != nil {
		return fmt.Errorf("end session: %w", err)
	}
	if n == 0 {
		return fault.Missing("session")
	}
	return nil
}

// EndSessionsTx signs the owner out everywhere except in one session, which may be
// empty, and says how many ended.
func (a *Accounts) EndSessionsTx(ctx context.Context, tx *db.Tx, owner UserID, except SessionID) (int64, error) {
	n, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND id <> $2`, owner, except)
	if err != nil {
		return 0, fmt.Errorf("end sessions: %w", err)
	}
	return n, nil
}

// expire removes what has ended by itself: sessions, ceremonies, offers and the far end of the log.
func (a *Accounts) expire(ctx context.Context) error {
	now := db.Now()
	return a.db.Write(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE expires_at <= $1 OR seen_at <= $2`, now, now.Add(-Idle)); err != nil {
			return err
		}
		for _, table := range []string{"ceremonies", "totp_offers"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE expires_at <= $1`, now); err != nil {
				return err
			}
		}
		return audit.ExpireTx(ctx, tx, now)
	})
}
