package account

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
)

// Mailer mails owners what happens to what is theirs. Accounts is one.
type Mailer interface {
	// TellOwnerTx is Accounts'.
	TellOwnerTx(ctx context.Context, tx *db.Tx, owner OwnerID, subject, text, path string) error
	// Mails reports whether there is mail at all.
	Mails() bool
}

// TellOwnerTx queues a mail to the people of an owner (of a team, its owners and admins), in the caller's transaction. path
// is a page of the dashboard that the text ends with. Where there is no mail it does nothing.
func (a *Accounts) TellOwnerTx(ctx context.Context, tx *db.Tx, owner OwnerID, subject, text, path string) error {
	if !a.Mails() {
		return nil
	}
	rows, err := tx.Query(ctx, `
		SELECT `+userColumns+` FROM users
		WHERE id IN (SELECT user_id FROM memberships WHERE owner_id = $1 AND role IN ('owner', 'admin')) AND suspended_at = 0 ORDER BY id`, owner)
	people, err := db.Collect(rows, err, func(r db.Scanner) (User, error) { return scanUser(r) })
	if err != nil {
		return fmt.Errorf("find people of owner: %w", err)
	}
	var team string
	err = tx.QueryRow(ctx, `SELECT name FROM owner_standing WHERE owner_id = $1 AND kind = 'team'`, owner).Scan(&team)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("find team of owner: %w", err)
	}
	return a.tell(ctx, tx, people, owner, subject, text, PageOf(team, path))
}

// PageOf returns the path of a dashboard's page as it shows what is a team's: without the team in it, pages show what is the reader's
// own. Pages of a site and of the team itself need nothing. team is a slug; empty: a personal account.
func PageOf(team, path string) string {
	if team == "" || strings.HasPrefix(path, "/sites/") || strings.HasPrefix(path, "/teams/") {
		return path
	}
	return AddParam(path, "team", team)
}

// AddParam adds a parameter, whose value needs no escaping, to a path or a URL that may have others.
func AddParam(to, name, value string) string {
	if strings.Contains(to, "?") {
		return to + "&" + name + "=" + value
	}
	return to + "?" + name + "=" + value
}

// TellOperatorsTx is TellOwnerTx for the operators of the installation.
func (a *Accounts) TellOperatorsTx(ctx context.Context, tx *db.Tx, subject, text, path string) error {
	if !a.Mails() {
		return nil
	}
	rows, err := tx.Query(ctx, `SELECT `+userColumns+` FROM users WHERE admin AND suspended_at = 0 ORDER BY id`)
	people, err := db.Collect(rows, err, func(r db.Scanner) (User, error) { return scanUser(r) })
	if err != nil {
		return fmt.Errorf("find operators: %w", err)
	}
	return a.tell(ctx, tx, people, "", subject, text, path)
}

func (a *Accounts) tell(ctx context.Context, tx *db.Tx, people []User, owner OwnerID, subject, text, path string) error {
	for _, u := range people {
		if err := a.writeTo(ctx, tx, u, owner, subject, text+"\n\n"+a.site+path+"\n", 0); err != nil {
			return err
		}
	}
	return nil
}
