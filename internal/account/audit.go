package account

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"slipway/internal/db"
)

// Actor is who does something, with what, from where.
type Actor struct {
	User    ID
	Key     KeyID     // Optional.
	Session SessionID // Optional.
	Addr    netip.Addr
}

// Entry is one line of the audit log.
type Entry struct {
	ID      string
	At      db.Time
	User    ID     // who did it
	Email   string // theirs; empty when they are gone
	About   ID     // the other user it concerns, or empty
	Key     KeyID
	Session SessionID
	Addr    string
	Action  string // noun.verb, such as key.created
	Subject string // the id of what it was done to, or empty
	Detail  string // in words
}

// Deed is what somebody did. Nothing in it is a secret.
type Deed struct {
	Action  string // noun.verb
	Subject string // Optional.
	Detail  string // in words; what is over 200 characters is cut. Optional.
	About   ID     // the other user it concerns. Optional.
}

// keepAudit is how long the log goes back.
const keepAudit = 400 * 24 * time.Hour

// AuditTx writes a line into the log, in the transaction that does what it says.
func (a *Accounts) AuditTx(ctx context.Context, tx *db.Tx, by Actor, d Deed) error {
	return writeAudit(ctx, tx, db.NewID("aud"), db.Now(), by, d)
}

func writeAudit(ctx context.Context, tx *db.Tx, id string, at db.Time, by Actor, d Deed) error {
	addr := ""
	if by.Addr.IsValid() {
		addr = by.Addr.String()
	}
	if d.About == by.User {
		d.About = ""
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO audit (id, at, user_id, about, key_id, session_id, addr, action, subject, detail)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		id, at, by.User, d.About, by.Key, by.Session, addr, d.Action, d.Subject, cut(d.Detail, 200))
	if err != nil {
		return fmt.Errorf("write audit log: %w", err)
	}
	return nil
}

// AuditFilter narrows the log. Zero fields don't.
type AuditFilter struct {
	User   ID     // what they did and what others did to them; empty: everybody's
	Action string // a noun ("key") or a whole action ("key.created")
	Before string // an entry's ID: only older ones
	Limit  int    // 1 to 200. Optional: 0 means 50.
}

// Audit returns a page of the log, the newest first.
func (a *Accounts) Audit(ctx context.Context, f AuditFilter) ([]Entry, error) {
	if f.Limit < 1 || f.Limit > 200 {
		f.Limit = 50
	}
	noun, whole := f.Action, ""
	if strings.Contains(f.Action, ".") {
		noun, whole = "", f.Action
	}
	rows, err := a.db.Query(ctx, `
		SELECT l.id, l.at, l.user_id, COALESCE(u.email, ''), l.about, l.key_id, l.session_id, l.addr, l.action, l.subject, l.detail
		FROM audit l LEFT JOIN users u ON u.id = l.user_id
		WHERE ($1 = '' OR l.user_id = $1 OR l.about = $1)
		  AND ($2 = '' OR l.action = $2) AND ($3 = '' OR substr(l.action, 1, length($3) + 1) = $3 || '.')
		  AND ($4 = '' OR l.id < $4)
		ORDER BY l.id DESC LIMIT $5`, string(f.User), whole, noun, f.Before, f.Limit)
	list, err := db.Collect(rows, err, func(row db.Scanner) (e Entry, err error) {
		err = row.Scan(&e.ID, &e.At, &e.User, &e.Email, &e.About, &e.Key, &e.Session, &e.Addr, &e.Action, &e.Subject, &e.Detail)
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
