package account

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
)

// SetRoleTx makes a user an operator or takes that away. Whoever loses it is signed out
// everywhere, so that no open page goes on showing what is no longer theirs. The last
// operator keeps it.
func (a *Accounts) SetRoleTx(ctx context.Context, tx *db.Tx, id UserID, admin bool) (User, error) {
	if !admin {
		if err := spareLast(ctx, tx, id); err != nil {
			return User{}, err
		}
		if _, err := tx.Exec(ctx,
			`DELETE FROM sessions WHERE user_id = $1 AND EXISTS (SELECT 1 FROM users WHERE id = $1 AND admin)`,
			id); err != nil {
			return User{}, fmt.Errorf("set role: %w", err)
		}
	}
	return scanUser(tx.QueryRow(ctx, `UPDATE users SET admin = $2 WHERE id = $1 RETURNING `+userColumns, id, admin))
}

// DeleteUserTx removes a user with everything that lets them in. Their sites go first,
// through the service that owns them: a user who has any is a Conflict fault. What they did
// stays in the audit log. Nobody deletes themselves, and the last operator stays.
func (a *Accounts) DeleteUserTx(ctx context.Context, tx *db.Tx, by audit.Actor, id UserID) (User, error) {
	if err := notOneself(by, id, "delete"); err != nil {
		return User{}, err
	}
	if err := spareLast(ctx, tx, id); err != nil {
		return User{}, err
	}
	u, err := scanUser(tx.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, id))
	if err != nil {
		return User{}, err
	}
	return u, removeUser(ctx, tx, u)
}

// removeUser deletes the user with their personal account and all that this package
// stores of them.
func removeUser(ctx context.Context, tx *db.Tx, u User) error {
	var sites int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM open_sites WHERE owner_id = $1`, u.Owner).Scan(&sites); err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	if sites > 0 {
		return fault.New(fault.Conflict, "user_has_sites", "This user still has sites",
			fmt.Sprintf("there are %d: delete them first, or with the user", sites))
	}
	if err := lastOwnerOf(ctx, tx, u.ID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE api_keys SET user_id = (
			SELECT m.user_id FROM memberships m WHERE m.owner_id = api_keys.owner_id AND m.role = 'owner' AND m.user_id <> $1
			ORDER BY m.joined_at LIMIT 1)
		WHERE user_id = $1 AND kind = 'service'`, u.ID); err != nil {
		return fmt.Errorf("keep service keys: %w", err)
	}
	for _, table := range []string{
		"setup_links", "sessions", "ceremonies", "passkeys", "recovery_codes", "second_factors", "totp_offers",
		"api_keys",
	} {
		if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE user_id = $1`, u.ID); err != nil {
			return fmt.Errorf("delete user: %w", err)
		}
	}
	if _, err := tx.Exec(ctx, `DELETE FROM users WHERE id = $1`, u.ID); err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM owners WHERE id = $1`, u.Owner); err != nil {
		return fmt.Errorf("delete personal account: %w", err)
	}
	return nil
}

// spareLast is a Conflict fault when without this user nobody would run the installation.
// Operators who never came in, or are suspended, don't count.
func spareLast(ctx context.Context, tx *db.Tx, id UserID) error {
	// An update that changes nothing takes the rows' locks in both dialects: of two
	// operators who remove each other, the second waits and then sees that it is the last.
	if _, err := tx.Exec(ctx, `UPDATE users SET admin = admin WHERE admin`); err != nil {
		return fmt.Errorf("count operators: %w", err)
	}
	var last bool
	err := tx.QueryRow(ctx, `
		SELECT admin AND NOT EXISTS (SELECT 1 FROM users o WHERE o.admin AND o.id <> $1 AND o.suspended_at = 0 AND o.password <> '')
		FROM users WHERE id = $1`, id).Scan(&last)
	if err != nil {
		return missingUser(err)
	}
	if last {
		return fault.New(fault.Conflict, "last_operator", "This is the only operator", "make another user an operator first")
	}
	return nil
}

func notOneself(by audit.Actor, id UserID, verb string) error {
	if by.User == id {
		return fault.New(fault.Conflict, "oneself", "You cannot "+verb+" yourself", "another operator can")
	}
	return nil
}

// lastOwnerOf is a Conflict fault that names the teams whose last owner a user is.
func lastOwnerOf(ctx context.Context, tx *db.Tx, id UserID) error {
	const owned = `SELECT owner_id FROM memberships WHERE user_id = $1 AND role = 'owner' AND team_id <> ''`
	if _, err := tx.Exec(ctx, `UPDATE owners SET kind = kind WHERE id IN (`+owned+`)`, id); err != nil {
		return fmt.Errorf("lock teams: %w", err)
	}
	teams, err := LastOwnerOf(ctx, tx, id)
	if err != nil {
		return err
	}
	if len(teams) > 0 {
		return fault.New(fault.Conflict, "last_owner", "This user is the last owner of a team",
			"make another member an owner first, or delete the team: "+strings.Join(teams, ", "))
	}
	return nil
}

// LastOwnerOf returns the slugs of the teams that have no other owner who can sign in than this user. While the user is
// suspended, nobody acts as an owner of them.
func LastOwnerOf(ctx context.Context, r db.Reader, id UserID) ([]string, error) {
	rows, err := r.Query(ctx, `
		SELECT m.slug FROM memberships m WHERE m.user_id = $1 AND m.role = 'owner' AND m.team_id <> '' AND NOT EXISTS (
			SELECT 1 FROM memberships o JOIN users u ON u.id = o.user_id
			WHERE o.owner_id = m.owner_id AND o.role = 'owner' AND o.user_id <> $1 AND u.suspended_at = 0)
		ORDER BY m.slug`, id)
	teams, err := db.Collect(rows, err, func(r db.Scanner) (slug string, err error) { return slug, r.Scan(&slug) })
	if err != nil {
		return nil, fmt.Errorf("find teams of user: %w", err)
	}
	return teams, nil
}
