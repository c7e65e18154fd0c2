package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

var errSSO = fault.New(fault.Forbidden, "sso_required", "This team requires single sign-on",
	"sign out, then choose Single sign-on on the sign-in page; if you signed in another way, link the team's provider under "+
		"Account > Sign-in and security. API keys and apps work while your account is linked")

// ErrTeamSession is for sessions that began with a team's sign-in provider, outside of that team. The team's owners run the
// provider, so it can't vouch for anything that isn't the team's.
var ErrTeamSession = fault.New(fault.Forbidden, "team_session",
	"You signed in with a team's single sign-on, which opens that team only",
	"sign out, then sign in with your password, a passkey or a provider of this installation")

// errLinkEnded is for keys and grants whose user is no longer linked to the team's provider that they came through.
var errLinkEnded = fault.New(fault.Unauthorized, "link_ended", "The linked account that this credential was made with is gone",
	"sign in to the team again and create a new one")

// opens is nil for an owner that the session may open.
func (s Session) opens(owner OwnerID) error {
	if s.Only == "" || s.Only == owner {
		return nil
	}
	return ErrTeamSession
}

// opens is nil unless the actor's session opens a team alone and the action is another owner's.
func opens(ctx context.Context, r db.Reader, by audit.Actor) error {
	if by.Session == "" || by.Owner == "" {
		return nil
	}
	var foreign bool
	err := r.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM sessions s JOIN sign_in_providers p ON p.id = s.provider_id
		WHERE s.id = $1 AND p.owner_id NOT IN ('', $2))`, by.Session, by.Owner).Scan(&foreign)
	if err != nil {
		return fmt.Errorf("find provider of session: %w", err)
	}
	if foreign {
		return ErrTeamSession
	}
	return nil
}

// admitted is nil for a membership that lets its user act: by a session, or without one by a key or an app. A session that
// began with a team's provider opens that team alone, and what it made works while its user is linked there. In a team that
// requires single sign-on the session must have come from the team's provider, and a key or app works while its user has an
// account there. Where two-factor authentication is required the session must have passed it: owning a passkey isn't using
// it. The same goes for emergency owners, who may come without the provider: glass reports that they did.
func (m Membership) admitted(ctx context.Context, r db.Reader, by audit.Actor) (glass bool, err error) {
	if err := m.admits(); err != nil {
		return false, err
	}
	if by.Session == "" {
		return false, m.admitsCredential(ctx, r, by)
	}
	var through OwnerID // the team whose provider the session began with; empty: none
	var method Method
	var linked, came, strict bool
	err = r.QueryRow(ctx, `
		SELECT s.method, COALESCE(p.owner_id, ''), EXISTS (SELECT 1 FROM two_factor_teams f WHERE f.owner_id = $2),
			EXISTS (SELECT 1 FROM team_links l WHERE l.provider_id = s.provider_id AND l.user_id = s.user_id),
			EXISTS (SELECT 1 FROM team_providers t WHERE t.owner_id = $2 AND (t.id = s.provider_id
				OR t.id IN (SELECT provider_id FROM session_providers WHERE session_id = s.id)))
		FROM sessions s LEFT JOIN sign_in_providers p ON p.id = s.provider_id
		WHERE s.id = $1 AND `+provided, by.Session, by.Owner).Scan(&method, &through, &strict, &linked, &came)
	if errors.Is(err, sql.ErrNoRows) {
		return false, errSession
	}
	if err != nil {
		return false, fmt.Errorf("find provider of session: %w", err)
	}
	switch {
	case through != "" && through != by.Owner:
		return false, ErrTeamSession
	case through != "" && !linked:
		return false, errSession
	case strict && !method.Strong():
		return false, errStepUp
	case !m.requireSSO || m.Linked && came:
		return false, nil
	case m.BreakGlass && !method.Strong():
		return false, errStepUp
	case m.BreakGlass:
		return true, nil
	}
	return false, errSSO
}

// admitsCredential is admitted for a key or an app.
func (m Membership) admitsCredential(ctx context.Context, r db.Reader, by audit.Actor) error {
	if m.requireSSO && !m.Linked {
		return errSSO
	}
	if by.Through == "" {
		return nil
	}
	var linked bool
	err := r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM team_links WHERE provider_id = $1 AND owner_id = $2 AND user_id = $3)`,
		by.Through, by.Owner, by.User).Scan(&linked)
	if err != nil {
		return fmt.Errorf("find linked account: %w", err)
	}
	if !linked {
		return errLinkEnded
	}
	return nil
}

// noteBreakGlass writes into the team's log, and mails its owners, that an emergency owner came in without the team's
// provider: once for each session.
func (a *Accounts) noteBreakGlass(ctx context.Context, u User, owner OwnerID, s Session) error {
	var noted bool
	err := a.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM break_glass_uses WHERE session_id = $1 AND owner_id = $2)`, s.ID, owner).Scan(&noted)
	if err != nil {
		return fmt.Errorf("find break-glass use: %w", err)
	}
	if noted {
		return nil
	}
	return a.db.Write(ctx, func(tx *db.Tx) error {
		added, err := tx.Exec(ctx, `INSERT INTO break_glass_uses (session_id, owner_id, used_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			s.ID, owner, db.Now())
		if err != nil {
			return fmt.Errorf("note break-glass use: %w", err)
		}
		if added == 0 {
			return nil
		}
		err = a.AuditTx(ctx, tx, audit.Actor{User: u.ID, Owner: owner, Session: s.ID}, audit.Event{
			Action: "team.break_glass", Subject: string(u.ID), Detail: "signed in without the team's provider, by " + string(s.Method),
		})
		if err != nil {
			return err
		}
		return a.TellOwnerTx(ctx, tx, owner, u.Email+" signed in without single sign-on",
			u.Email+", an emergency owner, opened your team without its sign-in provider, from "+s.Addr+".\n\n"+
				"If you don't know why, remove them as an emergency owner and check the team's audit log.", "/")
	})
}

// SignedInWithTx notes that the holder of a session has signed in with a provider, to link an account there. A session that
// opens a team alone links nothing.
func (a *Accounts) SignedInWithTx(ctx context.Context, tx *db.Tx, session SessionID, provider string) error {
	var only bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT 1 FROM sessions s JOIN team_providers p ON p.id = s.provider_id WHERE s.id = $1)`, session).Scan(&only)
	if err != nil {
		return fmt.Errorf("find provider of session: %w", err)
	}
	if only {
		return ErrTeamSession
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO session_providers (session_id, provider_id) SELECT id, $2 FROM sessions WHERE id = $1
		ON CONFLICT DO NOTHING`, session, provider)
	if err != nil {
		return fmt.Errorf("note provider of session: %w", err)
	}
	return nil
}
