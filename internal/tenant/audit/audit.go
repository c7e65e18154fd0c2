// Package audit owns the audit log. Each entry has an actor, a credential and an address, and is written in the
// transaction of the action. Package account has already checked the actor's permission.
package audit

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/text"
)

// Actor is the person or service that performs an action, with the credential used.
type Actor struct {
	User    id.User    // empty: the service itself, or its command line
	Owner   id.Owner   // owner of the affected resource. Optional.
	Key     id.Key     // Optional.
	Grant   string     // an app's grant to act for the user. Optional.
	App     string     // the app's ID. Optional.
	Session id.Session // Optional.
	Via     string     // the credential in words, such as a key's name. Optional.
	Addr    netip.Addr
	Rights  string // the team membership that grants the permission. Optional: empty outside teams.
	Service bool   // whether a service key was used
	Through string // the team's sign-in provider whose removal ends the key or grant. Optional.
}

// Entry is one line of the audit log.
type Entry struct {
	ID      string
	At      db.Time
	User    id.User  // the actor
	Email   string   // the actor's; empty if the account was deleted
	About   id.User  // another user concerned, or empty
	Owner   id.Owner // owner of the affected resource, or empty
	Key     id.Key
	Session id.Session
	App     string // the app that acted for the user, or empty
	Grant   string // its grant, or empty
	Via     string // the credential in words; empty for a session
	Addr    string
	Action  string // noun.verb, such as key.created
	Subject string // ID of the affected resource, or empty
	Detail  string // a sentence
}

// Event describes an action. It must not contain secrets.
type Event struct {
	Action  string  // noun.verb
	Subject string  // Optional.
	Detail  string  // a sentence, cut at 200 characters. Optional.
	About   id.User // another user concerned. Optional.
}

// Unchanged is the event of a request that changed nothing. It isn't logged.
var Unchanged = Event{Action: "unchanged"}

// Logged is the event of a request that wrote its own entry, because the action changes the actor's permissions.
var Logged = Event{Action: "logged"}

// kept is how long entries are retained.
const kept = 400 * 24 * time.Hour

// NewID returns an entry ID for the current time.
func NewID() string { return db.NewID("aud") }

// WriteTx writes an entry in the transaction of its action.
func WriteTx(ctx context.Context, tx *db.Tx, by Actor, d Event) error {
	if d == Unchanged || d == Logged {
		return nil
	}
	return WriteLateTx(ctx, tx, NewID(), db.Now(), by, d)
}

// ExpireTx deletes entries older than the retention period.
func ExpireTx(ctx context.Context, tx *db.Tx, now db.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM audit WHERE at <= $1`, now.Add(-kept))
	return err
}

// EraseTx takes a user who was deleted out of the log: what they did stays, without their email address and where they
// did it from.
func EraseTx(ctx context.Context, tx *db.Tx, user id.User, email string) error {
	if _, err := tx.Exec(ctx, `UPDATE audit SET addr = '', via = '' WHERE user_id = $1`, user); err != nil {
		return fmt.Errorf("erase from audit log: %w", err)
	}
	// Entries of others name the address too, such as of an invitation.
	if _, err := tx.Exec(ctx,
		`UPDATE audit SET detail = replace(detail, $1, $2) WHERE replace(detail, $1, '') <> detail`, email, Erased); err != nil {
		return fmt.Errorf("erase from audit log: %w", err)
	}
	return nil
}

// Erased stands for the email address of an erased user.
const Erased = "(erased)"

// WriteLateTx writes an entry for the earlier time at. id is the result of NewID at that time.
func WriteLateTx(ctx context.Context, tx *db.Tx, id string, at db.Time, by Actor, d Event) error {
	addr := ""
	if by.Addr.IsValid() {
		addr = by.Addr.String()
	}
	if d.About == by.User {
		d.About = ""
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO audit (id, at, user_id, owner_id, about, key_id, session_id, via, addr, action, subject, detail, grant_id, app_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		id, at, by.User, by.Owner, d.About, by.Key, by.Session, text.Cut(by.Via, 200), addr, d.Action, d.Subject,
		text.Cut(d.Detail, 200), by.Grant, by.App)
	if err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return nil
}

// Filter selects entries. Zero fields match everything.
type Filter struct {
	User   id.User  // entries by or about this user
	Owner  id.Owner // entries on this owner's resources; with User, entries that match either
	By     id.User  // entries by this user
	Since  db.Time  // entries not older than this
	Key    id.Key   // entries made with this key
	App    string   // entries made by this app
	Action string   // a noun ("key") or an action ("key.created")
	Before string   // only entries older than this ID
	Limit  int      // 1 to 200. 0 means 50.
}

// where returns the filter as SQL with only the conditions in use, so that indexes apply. Partial indexes exclude empty
// values, so their columns' conditions do too.
func (f Filter) where() (string, db.Args) {
	sql, args := "TRUE", db.Args{}
	and := func(cond, v string) {
		if v != "" {
			sql += " AND " + strings.ReplaceAll(cond, "$", args.Add(v))
		}
	}
	if f.User != "" && f.Owner != "" {
		user, owner := args.Add(string(f.User)), args.Add(string(f.Owner))
		sql += " AND (l.user_id = " + user + " OR l.about = " + user + " OR l.owner_id = " + owner + ")"
	} else {
		and("(l.user_id = $ OR l.about = $)", string(f.User))
		and("l.owner_id = $ AND l.owner_id <> ''", string(f.Owner))
	}
	and("l.key_id = $ AND l.key_id <> ''", string(f.Key))
	and("l.user_id = $", string(f.By))
	and("l.app_id = $ AND l.app_id <> ''", f.App)
	if f.Since != 0 {
		sql += " AND l.at >= " + args.Add(f.Since)
	}
	if strings.Contains(f.Action, ".") {
		and("l.action = $", f.Action)
	} else {
		and("substr(l.action, 1, length($) + 1) = $ || '.'", f.Action)
	}
	and("l.id < $", f.Before)
	return sql, args
}

// List returns a page of entries, newest first.
func List(ctx context.Context, r db.Reader, f Filter) ([]Entry, error) {
	if f.Limit < 1 || f.Limit > 200 {
		f.Limit = 50
	}
	where, args := f.where()
	rows, err := r.Query(ctx, fmt.Sprintf(`
		SELECT l.id, l.at, l.user_id, COALESCE(u.email, ''), l.owner_id, l.about, l.key_id, l.session_id, l.app_id, l.grant_id,
		l.via, l.addr, l.action, l.subject, l.detail
		FROM (SELECT l.* FROM audit l WHERE %s ORDER BY l.id DESC LIMIT %d) l LEFT JOIN people u ON u.id = l.user_id
		ORDER BY l.id DESC`, where, f.Limit), args...)
	list, err := db.Collect(rows, err, func(row db.Scanner) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.User, &e.Email, &e.Owner, &e.About, &e.Key, &e.Session, &e.App, &e.Grant,
			&e.Via, &e.Addr, &e.Action, &e.Subject, &e.Detail)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return list, nil
}
