// Package audit owns the audit log: actions with their actor, credential and address. Entries are written in the
// transaction of the action; package account has checked the actor's permission before.
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

// Actor is who does something, with what, from where.
type Actor struct {
	User    id.User    // Optional: empty is the service itself, or its command line.
	Owner   id.Owner   // whose things it is done to. Optional.
	Key     id.Key     // Optional.
	Grant   string     // of an app that acts for the user. Optional.
	App     string     // that app's id. Optional.
	Session id.Session // Optional.
	Via     string     // with what, in words: the key, the deploy hook. Optional.
	Addr    netip.Addr
	Rights  string // the membership that it is done with. Optional: not in a team.
	Service bool   // by a service key
	Through string // the team's sign-in provider that the key or grant ends with. Optional.
}

// Entry is one line of the audit log.
type Entry struct {
	ID      string
	At      db.Time
	User    id.User  // who did it
	Email   string   // theirs; empty when they are gone
	About   id.User  // the other user it concerns, or empty
	Owner   id.Owner // whose things it was done to, or empty
	Key     id.Key
	Session id.Session
	App     string // the app that acted for the user, or empty
	Grant   string // its grant, or empty
	Via     string // with what, in words; empty for a session
	Addr    string
	Action  string // noun.verb, such as key.created
	Subject string // the id of what it was done to, or empty
	Detail  string // in words
}

// Event is one entry of the audit log: what was done to what. It holds no secret.
type Event struct {
	Action  string  // noun.verb
	Subject string  // Optional.
	Detail  string  // in words; what is over 200 characters is cut. Optional.
	About   id.User // the other user it concerns. Optional.
}

// Unchanged is the event of a request that left all as it was: the log doesn't have it.
var Unchanged = Event{Action: "unchanged"}

// Logged is the event of a request that wrote its line itself, before it changed what its own rights come from.
var Logged = Event{Action: "logged"}

// kept is how long the log goes back.
const kept = 400 * 24 * time.Hour

// NewID returns the id of an entry of this moment.
func NewID() string { return db.NewID("aud") }

// WriteTx writes a line into the log, in the transaction that does what it says.
func WriteTx(ctx context.Context, tx *db.Tx, by Actor, d Event) error {
	if d == Unchanged || d == Logged {
		return nil
	}
	return WriteLateTx(ctx, tx, NewID(), db.Now(), by, d)
}

// ExpireTx removes what is older than the log goes back.
func ExpireTx(ctx context.Context, tx *db.Tx, now db.Time) error {
	_, err := tx.Exec(ctx, `DELETE FROM audit WHERE at <= $1`, now.Add(-kept))
	return err
}

// WriteLateTx writes the line of an earlier moment: id is NewID's of then.
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

// Filter narrows the log. Zero fields don't.
type Filter struct {
	User   id.User  // what they did and what others did to them; empty: everybody's
	Owner  id.Owner // what was done to their things; with User, what is about either
	By     id.User  // what this user did. Optional.
	Since  db.Time  // not older than that. Optional.
	Key    id.Key   // what was done with this key
	App    string   // what this app did. Optional.
	Action string   // a noun ("key") or a whole action ("key.created")
	Before string   // an entry's ID: only older ones
	Limit  int      // 1 to 200. Optional: 0 means 50.
}

// where is the filter as SQL: only what is asked for, so that an index can answer. Those that leave out empty values
// answer only where the condition does too, for whatever value.
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

// List returns a page of the log, the newest first.
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
		err = row.Scan(
			&e.ID, &e.At, &e.User, &e.Email, &e.Owner, &e.About, &e.Key, &e.Session, &e.App, &e.Grant, &e.Via,
			&e.Addr, &e.Action, &e.Subject, &e.Detail,
		)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return list, nil
}
