package party

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

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
	VAT          VATState
	CheckedAt    db.Time // when that was found out; 0: it wasn't
	Consultation string  // what proves that VIES was asked; empty: it has no such number
}

// Profile returns an owner's billing profile, empty where none was given.
func (ps *Parties) Profile(ctx context.Context, r db.Reader, owner id.Owner) (p Profile, err error) {
	p.VAT = VATNone
	var text string
	err = r.QueryRow(ctx, `SELECT profile, vat_state, vat_checked_at, vat_consultation FROM billing_profiles WHERE owner_id = $1`, owner).Scan(
		&text, &p.VAT, &p.CheckedAt, &p.Consultation)
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
	is := was
	if is.Party = p; p.VATID == "" {
		is = Profile{Party: p, VAT: VATNone}
	} else if p.VATID != was.VATID || p.Country != was.Country || p.Name != was.Name {
		is = Profile{Party: p, VAT: VATUnchecked}
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
	p.CheckedAt, p.Consultation = ps.clock.Now(), ""
	return p, ps.writeProfileTx(ctx, tx, owner, p)
}

func (ps *Parties) writeProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Profile) error {
	text, err := json.Marshal(p.Party)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE billing_profiles SET profile = $2, vat_state = $3, updated_at = $4, vat_checked_at = $5, vat_consultation = $6, vat_next_at = 0
		WHERE owner_id = $1`, owner, string(text), p.VAT, ps.clock.Now(), p.CheckedAt, p.Consultation); err != nil {
		return fmt.Errorf("write billing profile: %w", err)
	}
	return nil
}

// Number is a VAT number that nobody has checked.
type Number struct {
	Owner id.Owner
	VATID string
}

// Verdict is what was found out about a VAT number.
type Verdict struct {
	Known        bool // else it stays unchecked
	Valid        bool
	Consultation string
	Again        db.Time // when it is asked for again, while it is not known
}

// InVIES reports whether VIES knows numbers of this form.
func InVIES(number string) bool { return len(number) > 2 && vatForms[number[:2]].form != nil }

// Unchecked returns VAT numbers that VIES is to be asked for now. Those of another country than the profile's are left to the operator.
func (ps *Parties) Unchecked(ctx context.Context, r db.Reader, most int) ([]Number, error) {
	rows, err := r.Query(ctx, `
		SELECT owner_id, profile FROM billing_profiles WHERE vat_state = 'unchecked' AND vat_next_at <= $1
		ORDER BY vat_next_at, owner_id LIMIT $2`, ps.clock.Now(), most)
	list, err := db.Collect(rows, err, func(s db.Scanner) (n Number, err error) {
		var text string
		var p Party
		if err := s.Scan(&n.Owner, &text); err != nil {
			return n, err
		}
		err = json.Unmarshal([]byte(text), &p)
		n.VATID = p.VATID
		if country := strings.Replace(p.Country, "GR", "EL", 1); !InVIES(p.VATID) || p.VATID[:2] != country && p.VATID[:2] != "XI" {
			n.VATID = ""
		}
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("list unchecked VAT numbers: %w", err)
	}
	return list, nil
}

// CheckedTx keeps what was found out about a number, unless the owner has another one by now or the operator has decided.
func (ps *Parties) CheckedTx(ctx context.Context, tx *db.Tx, n Number, v Verdict) error {
	if err := LockTx(ctx, tx, n.Owner); err != nil {
		return err
	}
	p, err := ps.Profile(ctx, tx, n.Owner)
	if err != nil || p.VAT != VATUnchecked {
		return err
	}
	if !v.Known || p.VATID != n.VATID {
		if _, err := tx.Exec(ctx, `UPDATE billing_profiles SET vat_next_at = $2 WHERE owner_id = $1`, n.Owner, v.Again); err != nil {
			return fmt.Errorf("write when a VAT number is checked: %w", err)
		}
		return nil
	}
	if p.VAT = VATInvalid; v.Valid {
		p.VAT = VATValid
	}
	p.CheckedAt, p.Consultation = ps.clock.Now(), v.Consultation
	return ps.writeProfileTx(ctx, tx, n.Owner, p)
}
