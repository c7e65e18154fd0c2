package party

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
)

// VATState says what is known of a VAT number.
type VATState string

// What is known of VAT numbers. What could not be checked is unchecked, never invalid.
const (
	VATNone      VATState = "none"
	VATUnchecked VATState = "unchecked"
	VATValid     VATState = "valid"
	VATInvalid   VATState = "invalid"
)

// Profile is whom an owner's invoices are made out to.
type Profile struct {
	Party
	VAT VATState
}

// Profile returns an owner's billing profile, empty where none was given.
func (ps *Parties) Profile(ctx context.Context, r db.Reader, owner id.Owner) (p Profile, err error) {
	p.VAT = VATNone
	var text string
	err = r.QueryRow(ctx, `SELECT profile, vat_state FROM billing_profiles WHERE owner_id = $1`, owner).Scan(&text, &p.VAT)
	if errors.Is(err, sql.ErrNoRows) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &p.Party)
	}
	if err != nil {
		return p, fmt.Errorf("read billing profile: %w", err)
	}
	return p, nil
}

// SaveProfileTx replaces an owner's billing profile. A VAT number that has changed is unchecked.
func (ps *Parties) SaveProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Party) (Profile, error) {
	if err := p.check(true); err != nil {
		return Profile{}, err
	}
	if err := LockTx(ctx, tx, owner); err != nil {
		return Profile{}, err
	}
	was, err := ps.Profile(ctx, tx, owner)
	if err != nil {
		return Profile{}, err
	}
	is := Profile{Party: p, VAT: was.VAT}
	if p.VATID == "" {
		is.VAT = VATNone
	} else if p.VATID != was.VATID || p.Country != was.Country || p.Name != was.Name {
		is.VAT = VATUnchecked
	}
	return is, ps.writeProfileTx(ctx, tx, owner, is)
}

// VerifyVATTx keeps what the operator found out about an owner's VAT number.
func (ps *Parties) VerifyVATTx(ctx context.Context, tx *db.Tx, owner id.Owner, valid bool) (Profile, error) {
	if err := LockTx(ctx, tx, owner); err != nil {
		return Profile{}, err
	}
	p, err := ps.Profile(ctx, tx, owner)
	if err != nil {
		return p, err
	}
	if p.VATID == "" {
		return p, fault.Conflicting("no_vat_id", "The owner has no VAT number", "it is given in the billing profile")
	}
	if p.VAT = VATInvalid; valid {
		p.VAT = VATValid
	}
	return p, ps.writeProfileTx(ctx, tx, owner, p)
}

func (ps *Parties) writeProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Profile) error {
	text, err := json.Marshal(p.Party)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_profiles SET profile = $2, vat_state = $3, updated_at = $4 WHERE owner_id = $1`,
		owner, string(text), p.VAT, ps.clock.Now()); err != nil {
		return fmt.Errorf("write billing profile: %w", err)
	}
	return nil
}
