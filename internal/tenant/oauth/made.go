package oauth

import (
	"context"
	"fmt"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// Kind names what an app can create that would go on without its tokens.
type Kind string

// The kinds.
const (
	Webhook    Kind = "webhook"
	DeployHook Kind = "deploy_hook"
	Channel    Kind = "channel"    // of notifications
	Polling    Kind = "polling"    // of a site's repository; the id is the site's
	Repository Kind = "repository" // that a site deploys since the app chose it; the id is the site's
)

// Remover deletes what an app created. What isn't there any more is no error.
type Remover interface {
	RemoveMadeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id string) error
}

// Removers holds the packages in which apps create things.
type Removers struct{ Webhooks, DeployHooks, Channels, Polling, Repositories Remover }

func (r Removers) of(k Kind) Remover {
	switch k {
	case Webhook:
		return r.Webhooks
	case DeployHook:
		return r.DeployHooks
	case Channel:
		return r.Channels
	case Polling:
		return r.Polling
	case Repository:
		return r.Repositories
	}
	return nil
}

// Connect names the packages in which apps create things. They end with the grant, so that an app doesn't hear of an
// account that has revoked its access.
func (s *Server) Connect(removers Removers) { s.removers = removers }

// MadeTx remembers what a caller has created, where the caller is an app. What people create with the command line is theirs: it
// stays when they sign out there, as what they create with a key does.
func (s *Server) MadeTx(ctx context.Context, tx *db.Tx, by account.Caller, kind Kind, id string) error {
	if !IsApp(by) {
		return nil
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO oauth_made (kind, id, owner_id, grant_id) VALUES ($1, $2, $3, $4)
		ON CONFLICT (kind, id) DO UPDATE SET owner_id = EXCLUDED.owner_id, grant_id = EXCLUDED.grant_id`, kind, id, by.Owner, by.Grant)
	if err != nil {
		return fmt.Errorf("remember what an app created: %w", err)
	}
	return nil
}

// IsApp reports whether an app acts, and not a person, one of their keys, or the command line, which is nobody else's app.
func IsApp(by account.Caller) bool { return by.Grant != "" && AppID(by.App) != CLI }

// RenamedTx remembers what an app created under its new id: a deploy hook that is rotated still ends with the app's access,
// whoever rotated it.
func (s *Server) RenamedTx(ctx context.Context, tx *db.Tx, kind Kind, from, to string) error {
	if _, err := tx.Exec(ctx, `UPDATE oauth_made SET id = $3 WHERE kind = $1 AND id = $2`, kind, from, to); err != nil {
		return fmt.Errorf("follow what an app created: %w", err)
	}
	return nil
}

// TakenOverTx forgets that an app created something: a person has decided on it since.
func (s *Server) TakenOverTx(ctx context.Context, tx *db.Tx, kind Kind, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM oauth_made WHERE kind = $1 AND id = $2`, kind, id); err != nil {
		return fmt.Errorf("forget what an app created: %w", err)
	}
	return nil
}

// errNotMade is for apps that would change what somebody else created: the change would outlive their access.
var errNotMade = fault.New(fault.Forbidden, "not_created_by_app", "This app didn't create it",
	"apps can change and delete only the webhooks, deploy hooks and notification channels that they created")

// Changes is nil where the caller may change or delete a thing of this kind. An app may where it created it, with any of its
// grants for the account: what an app points at an address of its own must end with its access. People, their keys and the
// command line, which is nobody else's app, may all that their scopes say.
func (s *Server) Changes(ctx context.Context, r db.Reader, by account.Caller, kind Kind, id string) error {
	made, err := s.Made(ctx, r, by, kind)
	if err == nil && !made(id) {
		err = errNotMade
	}
	return err
}

// Made tells what of a kind the caller's app created in the account; for everybody else all is theirs.
func (s *Server) Made(ctx context.Context, r db.Reader, by account.Caller, kind Kind) (func(id string) bool, error) {
	if !IsApp(by) {
		return func(string) bool { return true }, nil
	}
	rows, err := r.Query(ctx, `
		SELECT m.id FROM oauth_made m JOIN oauth_grants g ON g.id = m.grant_id
		WHERE m.kind = $1 AND m.owner_id = $2 AND g.app_id = $3`, kind, by.Owner, by.App)
	list, err := db.Collect(rows, err, func(r db.Scanner) (id string, err error) { return id, r.Scan(&id) })
	if err != nil {
		return nil, fmt.Errorf("find what an app created: %w", err)
	}
	return func(id string) bool { return slices.Contains(list, id) }, nil
}

// made is one thing that an app created.
type made struct {
	kind  Kind
	id    string
	owner account.OwnerID
}

// RemoveMadeByTx deletes what apps created for an owner with one user's grants, which stay.
func (s *Server) RemoveMadeByTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, user account.UserID) error {
	return s.removeMadeTx(ctx, tx, `owner_id = $1 AND user_id = $2`, owner, user)
}

// notCLI is the condition of things that apps of others than the installation made.
const notCLI = `grant_id NOT IN (SELECT id FROM oauth_grants WHERE app_id = '` + string(CLI) + `')`

// RemoveMovedTx deletes those of some things that apps created, once they are another owner's: the grants are for the owner before.
// It returns how many there were.
func (s *Server) RemoveMovedTx(ctx context.Context, tx *db.Tx, kind Kind, ids []string, owner account.OwnerID) (removed int, err error) {
	for _, id := range ids {
		n, err := tx.Exec(ctx, `DELETE FROM oauth_made WHERE kind = $1 AND id = $2 AND `+notCLI, kind, id)
		if err == nil && n > 0 {
			removed++
			err = s.removers.of(kind).RemoveMadeTx(ctx, tx, owner, id)
		}
		if err != nil {
			return removed, fmt.Errorf("remove what an app created: %w", err)
		}
	}
	return removed, nil
}

// removeMadeTx deletes what the grants of a condition have created.
func (s *Server) removeMadeTx(ctx context.Context, tx *db.Tx, where string, args ...any) error {
	// Transactions in which apps make something hold their grants: they come before, and are found, or afterwards, and are refused.
	if _, err := tx.Exec(ctx, `UPDATE oauth_grants SET id = id WHERE `+where, args...); err != nil {
		return fmt.Errorf("lock grants: %w", err)
	}
	of := ` FROM oauth_made WHERE grant_id IN (SELECT id FROM oauth_grants WHERE ` + where + `)`
	// Earlier versions remembered it of the command line, too.
	rows, err := tx.Query(ctx, `SELECT kind, id, owner_id`+of+` AND `+notCLI, args...)
	list, err := db.Collect(rows, err, func(r db.Scanner) (m made, err error) { return m, r.Scan(&m.kind, &m.id, &m.owner) })
	if err != nil {
		return fmt.Errorf("find what apps created: %w", err)
	}
	for _, m := range list {
		r := s.removers.of(m.kind)
		if r == nil {
			return fmt.Errorf("nobody deletes the %s %s of an app", m.kind, m.id)
		}
		if err := r.RemoveMadeTx(ctx, tx, m.owner, m.id); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `DELETE`+of, args...); err != nil {
		return fmt.Errorf("forget what apps created: %w", err)
	}
	return nil
}
