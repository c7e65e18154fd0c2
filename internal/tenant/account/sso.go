package account

import (
	"context"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

var errSSO = &fault.Error{
	Kind: fault.Forbidden, Message: "This team requires single sign-on",
	Details: "sign out, then choose Single sign-on on the sign-in page; if you signed in another way, link the team's provider under " +
		"Account > Sign-in and security. API keys and apps work while your account is linked", Code: "sso_required",
}

// admitted is nil for a membership that lets its user act: by a session, or with session empty by a key or an app. In a
// team that requires single sign-on the session must have come from the team's provider, and a key or app works while its
// user has an account there. Emergency owners may come another way: glass reports that they did.
func (m Membership) admitted(ctx context.Context, r db.Reader, owner OwnerID, session SessionID) (glass bool, err error) {
	if err := m.admits(); err != nil || !m.requireSSO {
		return false, err
	}
	if m.Linked && session == "" {
		return false, nil
	}
	if session == "" {
		return false, errSSO
	}
	came := false
	if m.Linked {
		err := r.QueryRow(ctx, `
			SELECT EXISTS (SELECT 1 FROM team_providers p WHERE p.owner_id = $2 AND (
				p.id = (SELECT provider_id FROM sessions WHERE id = $1)
				OR p.id IN (SELECT provider_id FROM session_providers WHERE session_id = $1)))`, session, owner).Scan(&came)
		if err != nil {
			return false, fmt.Errorf("find provider of session: %w", err)
		}
	}
	switch {
	case came:
		return false, nil
	case m.BreakGlass:
		return true, nil
	}
	return false, errSSO
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

// SignedInWithTx notes that the holder of a session has signed in with a provider.
func (a *Accounts) SignedInWithTx(ctx context.Context, tx *db.Tx, session SessionID, provider string) error {
	_, err := tx.Exec(ctx, `
		INSERT INTO session_providers (session_id, provider_id) SELECT id, $2 FROM sessions WHERE id = $1
		ON CONFLICT DO NOTHING`, session, provider)
	if err != nil {
		return fmt.Errorf("note provider of session: %w", err)
	}
	return nil
}
