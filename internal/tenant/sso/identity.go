package sso

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
)

// IdentityID names a linked identity: "idn_" and 26 characters.
type IdentityID string

// Identity is an external account that signs in a user.
type Identity struct {
	ID        IdentityID
	Owner     account.OwnerID // team of the provider that proved it; empty: the operator's
	Issuer    string
	Email     string // the issuer's latest
	CreatedAt db.Time
	UsedAt    db.Time // 0: never
}

// maxIdentities caps a user's linked identities.
const maxIdentities = 20

// Identities returns a user's linked identities, oldest first.
func (s *SSO) Identities(ctx context.Context, user account.UserID) ([]Identity, error) {
	return identities(ctx, s.c.DB, user)
}

func identities(ctx context.Context, r db.Reader, user account.UserID) ([]Identity, error) {
	rows, err := r.Query(ctx,
		`SELECT id, owner_id, issuer, email, created_at, used_at FROM sso_identities WHERE user_id = $1 ORDER BY created_at, id`, user)
	list, err := db.Collect(rows, err, func(r db.Scanner) (i Identity, err error) {
		return i, r.Scan(&i.ID, &i.Owner, &i.Issuer, &i.Email, &i.CreatedAt, &i.UsedAt)
	})
	if err != nil {
		return nil, fmt.Errorf("list identities: %w", err)
	}
	return list, nil
}

// SignIn begins a session for the user of a proven identity. For an unlinked identity it creates an account if the
// provider vouches for the address, otherwise it returns a Forbidden fault.
func (s *SSO) SignIn(ctx context.Context, p Proof, d account.Device) (session account.Session, token string, err error) {
	if p.Links() {
		return session, "", invalid("This sign-in was started to link an account", "start again from the sign-in page", "invalid_state")
	}
	err = s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if _, err := s.Get(ctx, tx, p.Provider.ID); err != nil { // it may have been deleted meanwhile
			return err
		}
		user, err := s.userOf(ctx, tx, p, d)
		if err != nil {
			return err
		}
		session, token, err = s.c.Accounts.SignInWithTx(ctx, tx, user, string(p.Provider.ID), d)
		return err
	})
	return session, token, err
}

// holder returns the user of an identity and records its use, or "" if it isn't linked.
func holder(ctx context.Context, tx *db.Tx, p Proof) (user account.UserID, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE sso_identities SET used_at = $4, email = $5 WHERE owner_id = $1 AND issuer = $2 AND subject = $3 RETURNING user_id`,
		p.Provider.Owner, p.Provider.Issuer, p.Subject, db.Now(), text.Line(p.Email, 254)).Scan(&user)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find identity: %w", err)
	}
	return user, nil
}

// userOf returns the user to sign in. An unlinked identity matches an existing user by address only if that user has
// never been able to sign in, so that no account can be taken over.
func (s *SSO) userOf(ctx context.Context, tx *db.Tx, p Proof, d account.Device) (account.UserID, error) {
	user, err := holder(ctx, tx, p)
	if err != nil {
		return "", err
	}
	vouched, err := s.vouches(ctx, tx, p)
	if err != nil {
		return "", err
	}
	if user != "" {
		if vouched {
			_, err = s.joinTx(ctx, tx, p, user, audit.Actor{Addr: d.Addr})
		}
		return user, err
	}
	if !vouched {
		return "", fault.New(fault.Forbidden, "identity_unknown", "No user is linked to this "+p.Provider.Name+" account",
			"sign in another way, then link it under Account > Sign-in and security")
	}
	how := "invited user's first sign-in"
	u, err := s.c.Accounts.UserByEmailTx(ctx, tx, p.Email)
	if fault.Is(err, fault.NotFound) {
		how = "new user"
		u, err = s.c.Accounts.EnrollTx(ctx, tx, p.Email)
	}
	if err != nil {
		return "", err
	}
	known, err := s.comesIn(ctx, tx, u)
	if err != nil {
		return "", err
	}
	if known || u.Admin {
		return "", fault.New(fault.Forbidden, "link_required", "A user with this email address already exists",
			"sign in the way you did before, then link your "+p.Provider.Name+" account under Account > Sign-in and security")
	}
	if err := s.linkTx(ctx, tx, p, audit.Actor{User: u.ID, Addr: d.Addr}, how); err != nil {
		return "", err
	}
	in, err := s.joinTx(ctx, tx, p, u.ID, audit.Actor{Addr: d.Addr})
	if err == nil && !in { // rolled back
		err = fault.New(fault.Forbidden, "invitation_required", "You need an invitation to this team",
			"ask an owner or admin of the team to invite "+u.Email+", then sign in again")
	}
	return u.ID, err
}

// comesIn reports whether a user has any way to sign in.
func (s *SSO) comesIn(ctx context.Context, tx *db.Tx, u account.User) (bool, error) {
	list, err := identities(ctx, tx, u.ID)
	if err != nil || u.Password || len(list) > 0 {
		return true, err
	}
	return s.c.Accounts.HasPasskeyTx(ctx, tx, u.ID)
}

// vouches reports whether the provider verified the address and may vouch for it.
func (s *SSO) vouches(ctx context.Context, r db.Reader, p Proof) (bool, error) {
	if !p.Verified || strings.Count(p.Email, "@") != 1 {
		return false, nil
	}
	return s.speaksFor(ctx, r, p.Provider, p.Email)
}

// Link links a proven identity to the user whose session began the sign-in. It returns a Conflict fault if it is
// another user's.
func (s *SSO) Link(ctx context.Context, p Proof, by audit.Actor) error {
	if !p.Links() || p.session != by.Session || by.User == "" {
		return invalid("This sign-in was started in another session", "start again under Account > Sign-in and security", "invalid_state")
	}
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		if err := account.HoldTx(ctx, tx, by); err != nil {
			return err
		}
		if _, err := s.Get(ctx, tx, p.Provider.ID); err != nil {
			return err
		}
		if u, err := s.c.Accounts.UserTx(ctx, tx, by.User); err != nil {
			return err
		} else if u.Admin && p.Provider.Owner != "" {
			return errOperator
		}
		if err := s.c.Accounts.SignedInWithTx(ctx, tx, by.Session, string(p.Provider.ID)); err != nil {
			return err
		}
		switch user, err := holder(ctx, tx, p); {
		case err != nil:
			return err
		case user == by.User:
			return s.joinLinked(ctx, tx, p, by)
		case user != "":
			return fault.New(fault.Conflict, "identity_taken", "This "+p.Provider.Name+" account is linked to another user",
				"unlink it there first")
		}
		if err := s.linkTx(ctx, tx, p, by, "by its user"); err != nil {
			return err
		}
		return s.joinLinked(ctx, tx, p, by)
	})
}

// errOperator refuses to link an operator's account at a team's provider.
var errOperator = fault.New(fault.Forbidden, "operator_link", "Operators can't link a team's sign-in provider",
	"the team's owners run it; use another user, who isn't an operator, in that team")

// joinLinked adds the user who linked a team provider's account to the team, if the provider vouches for the address.
func (s *SSO) joinLinked(ctx context.Context, tx *db.Tx, p Proof, by audit.Actor) error {
	vouched, err := s.vouches(ctx, tx, p)
	if err == nil && vouched {
		_, err = s.joinTx(ctx, tx, p, by.User, by)
	}
	return err
}

func (s *SSO) linkTx(ctx context.Context, tx *db.Tx, p Proof, by audit.Actor, how string) error {
	list, err := identities(ctx, tx, by.User)
	if err != nil {
		return err
	}
	if len(list) >= maxIdentities {
		return fault.New(fault.Conflict, "too_many_identities", "Too many linked accounts",
			fmt.Sprintf("a user has at most %d: unlink one first", maxIdentities))
	}
	id, now := db.ID[IdentityID]("idn"), db.Now()
	added, err := tx.Exec(ctx, `
		INSERT INTO sso_identities (owner_id, issuer, subject, id, user_id, email, created_at, used_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
		ON CONFLICT DO NOTHING`, p.Provider.Owner, p.Provider.Issuer, p.Subject, id, by.User, text.Line(p.Email, 254), now)
	if err != nil {
		return fmt.Errorf("link identity: %w", err)
	}
	if added == 0 { // a concurrent request added them
		return fault.New(fault.Conflict, "identity_taken", "This account was linked just now", "sign in again")
	}
	return s.c.Accounts.AuditTx(ctx, tx, by, audit.Event{
		Action: "identity.linked", Subject: string(id), Detail: text.Line(p.Email, 254) + " at " + p.Provider.Issuer + ", " + how,
	})
}

// Unlink calls UnlinkTx in its own transaction and writes the audit log.
func (s *SSO) Unlink(ctx context.Context, by audit.Actor, id IdentityID) error {
	return s.c.DB.Write(ctx, func(tx *db.Tx) error {
		did, err := s.UnlinkTx(ctx, tx, by.User, id)
		if err == nil {
			err = s.c.Accounts.AuditTx(ctx, tx, by, did)
		}
		return err
	})
}

// UnlinkTx removes a user's identity and ends the sessions begun by its providers. It returns a Conflict fault for the
// user's last way to sign in.
func (s *SSO) UnlinkTx(ctx context.Context, tx *db.Tx, user account.UserID, id IdentityID) (did audit.Event, err error) {
	if err := account.LockUserTx(ctx, tx, user); err != nil {
		return did, err
	}
	list, err := identities(ctx, tx, user)
	if err != nil {
		return did, err
	}
	i := slices.IndexFunc(list, func(i Identity) bool { return i.ID == id })
	if i < 0 {
		return did, fault.Missing("linked account")
	}
	gone := list[i]
	if err := s.spareLastWay(ctx, tx, user, gone); err != nil {
		return did, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM sso_identities WHERE id = $1 AND user_id = $2`, id, user); err != nil {
		return did, fmt.Errorf("unlink identity: %w", err)
	}
	did = audit.Event{Action: "identity.unlinked", Subject: string(id), Detail: gone.Email + " at " + gone.Issuer}
	return did, s.endSessionsTx(ctx, tx, user, gone)
}

func (s *SSO) spareLastWay(ctx context.Context, tx *db.Tx, user account.UserID, gone Identity) error {
	u, err := s.c.Accounts.UserTx(ctx, tx, user)
	if err != nil || u.Password {
		return err
	}
	if has, err := s.c.Accounts.HasPasskeyTx(ctx, tx, user); err != nil || has {
		return err
	}
	// others is whether another way to sign in remains. For an operator's identity, a team's provider doesn't count: it
	// only opens the team.
	var others bool
	err = tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM sso_identities i JOIN sso_providers p ON p.issuer = i.issuer AND p.owner_id = i.owner_id
		WHERE i.user_id = $1 AND i.id <> $2 AND (i.owner_id = '' OR $3 <> ''))`, user, gone.ID, gone.Owner).Scan(&others)
	if err != nil {
		return fmt.Errorf("find other ways in: %w", err)
	}
	if !others {
		return fault.New(fault.Conflict, "last_way_in", "This is your only way to sign in",
			"add a passkey, set a password or link another account first")
	}
	return nil
}

// endSessionsTx ends a user's sessions begun with a provider of this identity.
func (s *SSO) endSessionsTx(ctx context.Context, tx *db.Tx, user account.UserID, gone Identity) error {
	list, err := s.list(ctx, tx, `issuer = $1 AND owner_id = $2`, gone.Issuer, gone.Owner)
	if err != nil {
		return err
	}
	for _, p := range list {
		if _, err := s.endTx(ctx, tx, p.ID, user); err != nil {
			return err
		}
	}
	return nil
}

func isMissing(err error) bool { return fault.Is(err, fault.NotFound) }

// CountUsers returns the number of users linked to a provider's issuer.
func (s *SSO) CountUsers(ctx context.Context, p Provider) (n int, err error) {
	err = s.c.DB.QueryRow(ctx, `SELECT count(DISTINCT user_id) FROM sso_identities WHERE issuer = $1 AND owner_id = $2`, p.Issuer, p.Owner).
		Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count linked users: %w", err)
	}
	return n, nil
}
