// Package confirmation owns the approval of agents' irreversible calls: a person approves one call with its arguments,
// and the credential that asked may then make that call once.
package confirmation

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

type ID string

// Life is how long a person has to decide, and again how long the agent has to make the call.
const Life = 10 * time.Minute

// maxOpen caps a person's undecided confirmations, which stops agents that keep asking.
const maxOpen = 20

// Decision is the person's answer. It is empty until they decide.
type Decision string

const (
	Approved Decision = "approved"
	Declined Decision = "declined"
)

// Line is a label and value shown to the person. The value is untrusted text.
type Line struct{ Label, Value string }

// Call is the call that an agent wants to make.
type Call struct {
	Tool      string
	Title     string // of the tool
	Arguments []byte // canonical: equal arguments have equal bytes
	About     []Line // shown to the person
	Addr      netip.Addr
}

// Confirmation is a call that waits for a decision, or the decision.
type Confirmation struct {
	ID       ID
	Owner    account.OwnerID
	Via      string // the agent's credential in words
	Addr     string
	Title    string
	About    []Line
	At       db.Time
	Expires  db.Time
	Decision Decision
	Used     bool // whether the call was made
}

// Confirmations stores confirmations. It is safe for concurrent use.
type Confirmations struct{ db *db.DB }

func New(d *db.DB) *Confirmations { return &Confirmations{d} }

// binding identifies a call with its credential. An app's renewed tokens keep the same grant, and so the same binding.
func binding(by account.Caller, call Call) string {
	sum := sha256.New()
	for _, part := range []string{string(by.User), string(by.Owner), string(by.Key), by.Grant, call.Tool, string(call.Arguments)} {
		fmt.Fprintf(sum, "%d:%s", len(part), part) // length-prefixed, so that parts can't be confused
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Take uses up a call's approval. If the returned confirmation is approved, the caller must make the call now, and no
// other caller can. Otherwise the call must not be made, since the person hasn't decided or has declined.
func (c *Confirmations) Take(ctx context.Context, by account.Caller, call Call) (got Confirmation, err error) {
	if by.Key == "" && by.Grant == "" {
		return got, errors.New("confirmation: the caller has no credential")
	}
	about, err := json.Marshal(call.About)
	if err != nil {
		return got, err
	}
	bound := binding(by, call)
	err = c.db.Write(ctx, func(tx *db.Tx) error {
		now := tx.Now()
		got, err = scan(tx.QueryRow(ctx, selected+`
			WHERE user_id = $1 AND binding = $2 AND used_at = 0 AND expires_at > $3
			ORDER BY CASE decision WHEN 'approved' THEN 0 WHEN 'declined' THEN 1 ELSE 2 END, id LIMIT 1`, by.User, bound, now))
		switch {
		case err == nil && got.Decision == Approved:
			n, err := tx.Exec(ctx, `UPDATE confirmations SET used_at = $2 WHERE id = $1 AND used_at = 0`, got.ID, now)
			if err == nil && n == 0 { // a concurrent call used it
				err = &fault.Error{Kind: fault.Conflict, Message: "This call is being made already", Code: "confirmation_used"}
			}
			return err
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM confirmations WHERE expires_at <= $1`, now.Add(-Life)); err != nil {
			return err
		}
		var open int
		err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM confirmations WHERE user_id = $1 AND decision = '' AND expires_at > $2`,
			by.User, now).Scan(&open)
		if err != nil {
			return err
		}
		if open >= maxOpen {
			return fault.New(fault.Limited, "too_many_confirmations", "Too many calls wait for a confirmation",
				"ask the user to decide about those first")
		}
		got = Confirmation{
			ID: ID(db.NewID("cnf")), Owner: by.Owner, Via: by.Via, Addr: call.Addr.String(), Title: call.Title, About: call.About,
			At: now, Expires: now.Add(Life),
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO confirmations (id, user_id, owner_id, binding, via, addr, title, about, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			got.ID, by.User, by.Owner, bound, got.Via, got.Addr, got.Title, string(about), got.At, got.Expires)
		return err
	})
	if err != nil && fault.As(err) == nil {
		err = fmt.Errorf("confirm a call: %w", err)
	}
	return got, err
}

const selected = `SELECT id, owner_id, via, addr, title, about, created_at, expires_at, decision, used_at FROM confirmations`

func scan(row db.Scanner) (c Confirmation, err error) {
	var about string
	var used db.Time
	err = row.Scan(&c.ID, &c.Owner, &c.Via, &c.Addr, &c.Title, &about, &c.At, &c.Expires, &c.Decision, &used)
	if err == nil {
		err = json.Unmarshal([]byte(about), &c.About)
	}
	c.Used = used != 0
	return c, err
}

var errUnknown = fault.New(fault.NotFound, "confirmation_not_found", "Unknown or expired confirmation",
	"Agents wait 10 minutes for a confirmation. Ask the agent to try again.")

// Find returns a confirmation of this user, decided or not. Expired ones are not found.
func (c *Confirmations) Find(ctx context.Context, user account.UserID, which ID) (Confirmation, error) {
	got, err := scan(c.db.QueryRow(ctx, selected+` WHERE id = $1 AND user_id = $2 AND expires_at > $3`, which, user, c.db.Now()))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return got, errUnknown
	case err != nil:
		return got, fmt.Errorf("find confirmation: %w", err)
	}
	return got, nil
}

// DecideTx records the user's decision. It works once.
func (c *Confirmations) DecideTx(ctx context.Context, tx *db.Tx, user account.UserID, which ID, d Decision) error {
	n, err := tx.Exec(ctx, `
		UPDATE confirmations SET decision = $3 WHERE id = $1 AND user_id = $2 AND decision = '' AND expires_at > $4`,
		which, user, d, tx.Now())
	if err != nil {
		return fmt.Errorf("decide about a call: %w", err)
	}
	if n == 0 {
		return errUnknown
	}
	return nil
}
