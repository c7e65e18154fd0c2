package account

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
)

// Actor is who does something, with what, from where.
type Actor struct {
	User    UserID    // Optional: empty is the service itself, or its command line.
	Owner   OwnerID   // whose things it is done to. Optional.
	Key     KeyID     // Optional.
	Grant   string    // of an app that acts for the user. Optional.
	Session SessionID // Optional.
	Via     string    // with what, in words: the key, the deploy hook. Optional.
	Addr    netip.Addr

	rights  string // the membership that it is done with; empty: not in a team
	service bool   // by a service key
}

// Entry is one line of the audit log.
type Entry struct {
	ID      string
	At      db.Time
	User    UserID  // who did it
	Email   string  // theirs; empty when they are gone
	About   UserID  // the other user it concerns, or empty
	Owner   OwnerID // whose things it was done to, or empty
	Key     KeyID
	Session SessionID
	Via     string // with what, in words; empty for a session
	Addr    string
	Action  string // noun.verb, such as key.created
	Subject string // the id of what it was done to, or empty
	Detail  string // in words
}

// AuditEvent is one entry of the audit log: what was done to what. It holds no secret.
type AuditEvent struct {
	Action  string // noun.verb
	Subject string // Optional.
	Detail  string // in words; what is over 200 characters is cut. Optional.
	About   UserID // the other user it concerns. Optional.
}

// Unchanged is the event of a request that left all as it was: the log doesn't have it.
var Unchanged = AuditEvent{Action: "unchanged"}

// Logged is the event of a request that wrote its line itself, before it changed what its own rights come from.
var Logged = AuditEvent{Action: "logged"}

// stands is nil while the actor may go on: in a team, while they belong to it with the role that they came with.
func (by Actor) stands(ctx context.Context, r db.Reader) error {
	if by.rights == "" && !by.service {
		return stands(ctx, r, by.User, fault.Unauthorized)
	}
	return holds(ctx, r, by)
}

// keepAudit is how long the log goes back.
const keepAudit = 400 * 24 * time.Hour

// AuditTx writes a line into the log, in the transaction that does what it says. Whoever
// was suspended or deleted while it ran is an Unauthorized fault, and nothing was done.
func (a *Accounts) AuditTx(ctx context.Context, tx *db.Tx, by Actor, d AuditEvent) error {
	if d == Logged {
		return nil
	}
	if by.User != "" {
		if err := by.stands(ctx, tx); err != nil {
			return err
		}
	}
	if d == Unchanged {
		return nil
	}
	return writeAudit(ctx, tx, db.NewID("aud"), db.Now(), by, d)
}

func writeAudit(ctx context.Context, tx *db.Tx, id string, at db.Time, by Actor, d AuditEvent) error {
	addr := ""
	if by.Addr.IsValid() {
		addr = by.Addr.String()
	}
	if d.About == by.User {
		d.About = ""
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO audit (id, at, user_id, owner_id, about, key_id, session_id, via, addr, action, subject, detail, grant_id)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`,
		id, at, by.User, by.Owner, d.About, by.Key, by.Session, cut(by.Via, 200), addr, d.Action, d.Subject, cut(d.Detail, 200), by.Grant)
	if err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return nil
}

// AuditFilter narrows the log. Zero fields don't.
type AuditFilter struct {
	User   UserID  // what they did and what others did to them; empty: everybody's
	Owner  OwnerID // what was done to their things; with User, what is about either
	By     UserID  // what this user did. Optional.
	Since  db.Time // not older than that. Optional.
	Key    KeyID   // what was done with this key
	Action string  // a noun ("key") or a whole action ("key.created")
	Before string  // an entry's ID: only older ones
	Limit  int     // 1 to 200. Optional: 0 means 50.
}

// where is the filter as SQL: only what is asked for, so that an index can answer.
func (f AuditFilter) where() (string, db.Args) {
	text, args := "TRUE", db.Args{}
	and := func(cond, v string) {
		if v != "" {
			text += " AND " + strings.ReplaceAll(cond, "$", args.Add(v))
		}
	}
	if f.User != "" && f.Owner != "" {
		user, owner := args.Add(string(f.User)), args.Add(string(f.Owner))
		text += " AND (l.user_id = " + user + " OR l.about = " + user + " OR l.owner_id = " + owner + ")"
	} else {
		and("(l.user_id = $ OR l.about = $)", string(f.User))
		and("l.owner_id = $", string(f.Owner))
	}
	and("l.key_id = $", string(f.Key))
	and("l.user_id = $", string(f.By))
	if f.Since != 0 {
		text += " AND l.at >= " + args.Add(f.Since)
	}
	if strings.Contains(f.Action, ".") {
		and("l.action = $", f.Action)
	} else {
		and("substr(l.action, 1, length($) + 1) = $ || '.'", f.Action)
	}
	and("l.id < $", f.Before)
	return text, args
}

// Audit returns a page of the log, the newest first.
func (a *Accounts) Audit(ctx context.Context, f AuditFilter) ([]Entry, error) {
	if f.Limit < 1 || f.Limit > 200 {
		f.Limit = 50
	}
	where, args := f.where()
	rows, err := a.db.Query(ctx, fmt.Sprintf(`
		SELECT l.id, l.at, l.user_id, COALESCE(u.email, ''), l.owner_id, l.about, l.key_id, l.session_id, l.via, l.addr, l.action, l.subject, l.detail
		FROM audit l LEFT JOIN users u ON u.id = l.user_id
		WHERE %s ORDER BY l.id DESC LIMIT %d`, where, f.Limit), args...)
	list, err := db.Collect(rows, err, func(row db.Scanner) (e Entry, err error) {
		err = row.Scan(
			&e.ID,
			&e.At,
			&e.User,
			&e.Email,
			&e.Owner,
			&e.About,
			&e.Key,
			&e.Session,
			&e.Via,
			&e.Addr,
			&e.Action,
			&e.Subject,
			&e.Detail,
		)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return list, nil
}

// cut makes a stranger's text fit a column: valid UTF-8 without NUL, at most n characters.
func cut(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
