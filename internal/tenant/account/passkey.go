package account

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// PasskeyID names a passkey: "psk_" and 26 characters.
type PasskeyID string

// Passkey is a WebAuthn credential as its owner sees it.
type Passkey struct {
	ID        PasskeyID
	Name      string
	Synced    bool // kept by a provider on several devices
	CreatedAt db.Time
	UsedAt    db.Time // 0: never
}

// maxPasskeys is the most a user can have.
const maxPasskeys = 20

var errManyPasskeys = fault.New(fault.Conflict, "too_many_passkeys", "Too many passkeys",
	fmt.Sprintf("a user has at most %d: remove one that is not used", maxPasskeys))

// ceremonyLife is how long somebody has to touch their authenticator.
const ceremonyLife = 5 * time.Minute

var (
	errNoPasskeys = fault.New(fault.Conflict, "passkeys_off", "Passkeys require a hostname",
		"browsers bind them to the name in the base URL; an address such as 127.0.0.1 has none")
	errPasskey = fault.New(fault.Unauthorized, "wrong_passkey", "Unknown passkey", "sign in with your password, then add it")
	errAnswer  = fault.New(fault.Invalid, "invalid_passkey", "Passkey verification failed",
		"try again; a verification is valid once and for five minutes")
)

// Passkeys reports whether there can be any: the dashboard's address has a host name.
func (a *Accounts) Passkeys() bool {
	_, err := a.relyingParty()
	return err == nil
}

// relyingParty is this installation as browsers know it (W3C WebAuthn Level 3 §5.4.2). A
// passkey checks its user (PIN, finger, face), so it stands for password and second factor.
func (a *Accounts) relyingParty() (*webauthn.WebAuthn, error) {
	u, err := url.Parse(a.site)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Hostname() != "localhost" {
		return nil, errNoPasskeys
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil {
		return nil, errNoPasskeys
	}
	return webauthn.New(&webauthn.Config{
		RPID: u.Hostname(), RPDisplayName: "Slipway", RPOrigins: []string{u.Scheme + "://" + u.Host},
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:      protocol.ResidentKeyRequirementRequired,
			UserVerification: protocol.VerificationRequired,
		},
	})
}

// holder is a user as the WebAuthn library sees one.
type holder struct {
	User
	credentials []webauthn.Credential
}

func (h holder) WebAuthnID() []byte                         { return []byte(h.ID) }
func (h holder) WebAuthnName() string                       { return h.Email }
func (h holder) WebAuthnDisplayName() string                { return h.Email }
func (h holder) WebAuthnCredentials() []webauthn.Credential { return h.credentials }

func (a *Accounts) holder(ctx context.Context, r db.Reader, id UserID) (h holder, err error) {
	if h.User, err = scanUser(r.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, id)); err != nil {
		return h, err
	}
	rows, err := r.Query(ctx, `SELECT record FROM passkeys WHERE user_id = $1 ORDER BY id`, id)
	h.credentials, err = db.Collect(rows, err, func(row db.Scanner) (c webauthn.Credential, err error) {
		var text string
		if err = row.Scan(&text); err != nil {
			return c, err
		}
		return c, json.Unmarshal([]byte(text), &c)
	})
	if err != nil {
		return h, fmt.Errorf("read passkeys: %w", err)
	}
	return h, nil
}

// ListPasskeys returns the owner's passkeys, oldest first.
func (a *Accounts) ListPasskeys(ctx context.Context, owner UserID) ([]Passkey, error) {
	rows, err := a.db.Query(ctx, `SELECT id, name, record, created_at, used_at FROM passkeys WHERE user_id = $1 ORDER BY id`, owner)
	list, err := db.Collect(rows, err, func(row db.Scanner) (p Passkey, err error) {
		var text string
		if err = row.Scan(&p.ID, &p.Name, &text, &p.CreatedAt, &p.UsedAt); err != nil {
			return p, err
		}
		var c webauthn.Credential
		err = json.Unmarshal([]byte(text), &c)
		p.Synced = c.Flags.BackupState
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("list passkeys: %w", err)
	}
	return list, nil
}

// Ceremony holds the options for the browser's WebAuthn call, and the token with which its answer comes back.
type Ceremony struct {
	Token   string `json:"token"`
	Options any    `json:"options"` // for navigator.credentials, as JSON
}

// OfferPasskey begins the making of a passkey.
func (a *Accounts) OfferPasskey(ctx context.Context, owner UserID) (Ceremony, error) {
	rp, err := a.relyingParty()
	if err != nil {
		return Ceremony{}, err
	}
	h, err := a.holder(ctx, a.db, owner)
	if err != nil {
		return Ceremony{}, err
	}
	if len(h.credentials) >= maxPasskeys {
		return Ceremony{}, errManyPasskeys
	}
	options, session, err := rp.BeginRegistration(h, webauthn.WithExclusions(webauthn.Credentials(h.credentials).CredentialDescriptors()))
	if err != nil {
		return Ceremony{}, fmt.Errorf("offer passkey: %w", err)
	}
	token, err := a.begin(ctx, owner, session)
	return Ceremony{token, options.Response}, err
}

// AddPasskey keeps the passkey that a browser made.
func (a *Accounts) AddPasskey(ctx context.Context, by audit.Actor, name, token string, response []byte) error {
	name = strings.TrimSpace(name)
	if n := utf8.RuneCountInString(name); n < 1 || n > 100 || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return fault.New(fault.Invalid, "invalid_name", "Invalid passkey name", "a name has 1 to 100 characters")
	}
	rp, err := a.relyingParty()
	if err != nil {
		return err
	}
	session, err := a.end(ctx, by.User, token)
	if err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return errAnswer
	}
	h, err := a.holder(ctx, a.db, by.User)
	if err != nil {
		return err
	}
	made, err := rp.CreateCredential(h, session, parsed)
	if err != nil {
		return errAnswer
	}
	// What the maker says of the device is not kept: nothing is decided by it.
	made.Attestation = webauthn.CredentialAttestation{}
	record, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		if err := HoldTx(ctx, tx, by); err != nil {
			return err
		}
		first, err := a.factors(ctx, tx, by)
		if err != nil {
			return err
		}
		var n int // counted again: any number may have been offered at once
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM passkeys WHERE user_id = $1`, by.User).Scan(&n); err != nil {
			return fmt.Errorf("count passkeys: %w", err)
		}
		if n >= maxPasskeys {
			return errManyPasskeys
		}
		id := db.ID[PasskeyID]("psk")
		_, err = tx.Exec(ctx,
			`INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at) VALUES ($1, $2, $3, $4, $5, $6, 0)`,
			id, by.User, credentialText(made.ID), string(record), name, db.Now())
		if db.Duplicate(err) {
			return &fault.Error{Kind: fault.Conflict, Message: "This passkey is already registered", Code: "passkey_taken"}
		}
		if err != nil {
			return fmt.Errorf("add passkey: %w", err)
		}
		if first {
			if err := a.raiseTx(ctx, tx, by, ByPasskey); err != nil {
				return err
			}
		}
		return a.AuditTx(ctx, tx, by, audit.Event{Action: "passkey.added", Subject: string(id), Detail: name})
	})
}

// RemovePasskeyTx ends a passkey for good, with the sessions that began with it but the one that asks, or is a NotFound fault.
func (a *Accounts) RemovePasskeyTx(ctx context.Context, tx *db.Tx, owner UserID, id PasskeyID, except SessionID) error {
	if err := LockUserTx(ctx, tx, owner); err != nil {
		return err
	}
	n, err := tx.Exec(ctx, `DELETE FROM passkeys WHERE user_id = $1 AND id = $2`, owner, id)
	if err != nil {
		return fmt.Errorf("remove passkey: %w", err)
	}
	if n == 0 {
		return fault.Missing("passkey")
	}
	var in bool
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM users WHERE id = $1 AND password <> '') OR EXISTS (SELECT 1 FROM passkeys WHERE user_id = $1)
			OR EXISTS (SELECT 1 FROM provided_users WHERE user_id = $1)`, owner).Scan(&in)
	if err != nil {
		return fmt.Errorf("remove passkey: %w", err)
	}
	if !in {
		return fault.New(fault.Conflict, "last_way_in", "This is your only way to sign in",
			"set a password or link an account of a provider of this installation first")
	}
	// Sessions that an earlier version began don't name their passkey. Another factor may have confirmed one since.
	_, err = tx.Exec(ctx, `
		DELETE FROM sessions WHERE user_id = $1 AND id <> $3 AND (passkey_id = $2 OR passkey_id = '' AND method = $4)`,
		owner, id, except, ByPasskey)
	if err != nil {
		return fmt.Errorf("end sessions of passkey: %w", err)
	}
	return nil
}

// AskPasskey begins a sign-in with whatever passkey the browser has.
func (a *Accounts) AskPasskey(ctx context.Context) (Ceremony, error) {
	rp, err := a.relyingParty()
	if err != nil {
		return Ceremony{}, err
	}
	options, session, err := rp.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return Ceremony{}, fmt.Errorf("ask for passkey: %w", err)
	}
	token, err := a.begin(ctx, "", session)
	return Ceremony{token, options.Response}, err
}

// SignInPasskey begins a session for the holder of a passkey. It owes no second factor.
func (a *Accounts) SignInPasskey(ctx context.Context, token string, response []byte, d Device) (s Session, secret string, err error) {
	err = a.answerPasskey(ctx, token, response, func(tx *db.Tx, owner UserID, id PasskeyID) (err error) {
		s, secret, err = a.beginTx(ctx, tx, owner, begun{method: ByPasskey, passkey: id}, d)
		return err
	})
	return s, secret, err
}

// answerPasskey checks a passkey's answer to AskPasskey, once, and calls then with the passkey and the user whose it is.
func (a *Accounts) answerPasskey(
	ctx context.Context, token string, response []byte, then func(tx *db.Tx, owner UserID, id PasskeyID) error,
) error {
	rp, err := a.relyingParty()
	if err != nil {
		return err
	}
	asked, err := a.end(ctx, "", token)
	if err != nil {
		return err
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return errAnswer
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		var owner UserID
		var stored error // the database's, which the library would hide
		used, err := rp.ValidateDiscoverableLogin(func(_, handle []byte) (webauthn.User, error) {
			owner = UserID(handle)
			h, err := a.holder(ctx, tx, owner)
			if err != nil && fault.As(err) == nil {
				stored = err
			}
			return h, err
		}, asked, parsed)
		if stored != nil {
			return stored
		}
		if err != nil || used.Authenticator.CloneWarning {
			return errPasskey
		}
		record, err := json.Marshal(used)
		if err != nil {
			return err
		}
		var id PasskeyID
		err = tx.QueryRow(ctx, `UPDATE passkeys SET record = $3, used_at = $4 WHERE user_id = $1 AND credential = $2 RETURNING id`,
			owner, credentialText(used.ID), string(record), db.Now()).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return errPasskey
		}
		if err != nil {
			return fmt.Errorf("note use of passkey: %w", err)
		}
		return then(tx, owner, id)
	})
}

func credentialText(id []byte) string { return base64.RawURLEncoding.EncodeToString(id) }

// begin keeps what was asked until the answer comes.
func (a *Accounts) begin(ctx context.Context, user UserID, asked *webauthn.SessionData) (token string, err error) {
	record, err := json.Marshal(asked)
	if err != nil {
		return "", err
	}
	token = db.Random(32)
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ceremonies (hash, user_id, record, expires_at) VALUES ($1, $2, $3, $4)`,
			digest(token), user, string(record), db.Now().Add(ceremonyLife))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("begin ceremony: %w", err)
	}
	return token, nil
}

// end takes what was asked, once.
func (a *Accounts) end(ctx context.Context, user UserID, token string) (asked webauthn.SessionData, err error) {
	var record string
	err = a.db.Write(ctx, func(tx *db.Tx) error {
		return tx.QueryRow(ctx, `DELETE FROM ceremonies WHERE hash = $1 AND user_id = $2 AND expires_at > $3 RETURNING record`,
			digest(token), user, db.Now()).Scan(&record)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return asked, errAnswer
	}
	if err != nil {
		return asked, fmt.Errorf("end ceremony: %w", err)
	}
	return asked, json.Unmarshal([]byte(record), &asked)
}

// DropPasskeysTx removes all passkeys of a user who has lost them, for an operator, and says how many there were. It also ends what was
// begun with or for one, sessions too. The user may have no way to sign in left: a one-time link sets a password.
func (a *Accounts) DropPasskeysTx(ctx context.Context, tx *db.Tx, owner UserID) (int64, error) {
	if err := LockUserTx(ctx, tx, owner); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM ceremonies WHERE user_id = $1`, owner); err != nil {
		return 0, fmt.Errorf("remove passkeys: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sessions WHERE user_id = $1 AND (passkey_id <> '' OR method = $2)`, owner, ByPasskey); err != nil {
		return 0, fmt.Errorf("end sessions of passkeys: %w", err)
	}
	n, err := tx.Exec(ctx, `DELETE FROM passkeys WHERE user_id = $1`, owner)
	if err != nil {
		return 0, fmt.Errorf("remove passkeys: %w", err)
	}
	return n, nil
}
