package party

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
)

// VATState is the result of checking a VAT number.
type VATState string

// The VAT states. A number that couldn't be checked is unchecked, never invalid.
const (
	VATNone        VATState = "none"
	VATUnchecked   VATState = "unchecked"
	VATUnconfirmed VATState = "unconfirmed" // it exists, but VIES reports another or no name or address
	VATValid       VATState = "valid"
	VATInvalid     VATState = "invalid"
)

// Profile is the recipient of an owner's invoices.
type Profile struct {
	Party
	VAT          VATState
	CheckedAt    db.Time // when VAT was determined; 0 if never
	Consultation string  // VIES's consultation number, the proof of the request; may be empty
	ByVIES       bool    // false: the operator decided
	Found        Found   // the number's holder according to VIES
}

// Found is the holder of a VAT number according to VIES.
type Found struct {
	Name    string `json:"name"`    // empty if VIES doesn't disclose it
	Address string `json:"address"` // likewise
}

// Profile returns an owner's billing profile, or an empty one.
func (ps *Parties) Profile(ctx context.Context, r db.Reader, owner id.Owner) (p Profile, err error) {
	p.VAT = VATNone
	var text, found string
	err = r.QueryRow(ctx, `
		SELECT profile, vat_state, vat_checked_at, vat_consultation, vat_by_vies, vat_found
		FROM billing_profiles WHERE owner_id = $1`, owner).Scan(&text, &p.VAT, &p.CheckedAt, &p.Consultation, &p.ByVIES, &found)
	if errors.Is(err, sql.ErrNoRows) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &p.Party)
	}
	if err == nil {
		err = json.Unmarshal([]byte(found), &p.Found)
	}
	if err != nil {
		return p, fmt.Errorf("read billing profile: %w", err)
	}
	return p, nil
}

// SaveProfileTx replaces an owner's billing profile. If a fact used to check the VAT number changed, the number becomes
// unchecked.
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
	is.Party = p
	if p.VATID == "" {
		is = Profile{Party: p, VAT: VATNone}
	} else if !p.same(was.Party) {
		is = Profile{Party: p, VAT: VATUnchecked}
	}
	var next db.Time
	if is.ByVIES {
		next = is.CheckedAt.Add(askAgain)
	}
	return is, ps.writeProfileTx(ctx, tx, owner, is, next)
}

// VerifyVATTx records the operator's decision about an owner's VAT number.
func (ps *Parties) VerifyVATTx(ctx context.Context, tx *db.Tx, owner id.Owner, valid bool) (Profile, error) {
	if err := LockTx(ctx, tx, owner); err != nil {
		return Profile{}, err
	}
	p, err := ps.Profile(ctx, tx, owner)
	if err != nil {
		return p, err
	}
	if p.VATID == "" {
		return p, fault.New(fault.Conflict, "no_vat_id", "The owner has no VAT number", "add one to the billing profile")
	}
	p.VAT = VATInvalid
	if valid {
		p.VAT = VATValid
	}
	p.CheckedAt, p.Consultation, p.ByVIES = ps.clock.Now(), "", false
	return p, ps.writeProfileTx(ctx, tx, owner, p, 0)
}

// same reports whether two parties are equal apart from the email address.
func (p Party) same(other Party) bool {
	p.Email = other.Email
	return p == other
}

// writeProfileTx stores a profile. VIES checks its VAT number at next.
func (ps *Parties) writeProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Profile, next db.Time) error {
	text, err := json.Marshal(p.Party)
	if err != nil {
		return err
	}
	found, err := json.Marshal(p.Found)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		UPDATE billing_profiles SET profile = $2, vat_state = $3, updated_at = $4, vat_checked_at = $5, vat_consultation = $6, vat_by_vies = $7,
			vat_found = $8, vat_next_at = $9
		WHERE owner_id = $1`, owner, string(text), p.VAT, ps.clock.Now(), p.CheckedAt, p.Consultation, p.ByVIES, string(found),
		next); err != nil {
		return fmt.Errorf("write billing profile: %w", err)
	}
	return nil
}

// Number is a VAT number to check with VIES.
type Number struct {
	Owner id.Owner
	Party        // the party that claims the number
	VATID string // empty: don't ask VIES
}

// Verdict is VIES's answer about a VAT number.
type Verdict struct {
	Known        bool // false: VIES has no answer now
	Valid        bool
	Consultation string
	Found        Found
	Again        db.Time // time of the next check while Known is false
}

// VIES is asked about a confirmed number again after askAgain, since businesses close. Without a new answer the
// confirmation is valid for keepVerdict.
const (
	askAgain    = 30 * 24 * time.Hour
	keepVerdict = 60 * 24 * time.Hour
)

// InVIES reports whether VIES covers numbers of this form.
func InVIES(number string) bool { return len(number) > 2 && vatForms[number[:2]].form != nil }

// Unchecked returns up to limit VAT numbers due for a check: unchecked ones, and those confirmed some time ago. It skips
// numbers of another country than the profile's, which the operator checks.
func (ps *Parties) Unchecked(ctx context.Context, r db.Reader, limit int) ([]Number, error) {
	rows, err := r.Query(ctx, `
		SELECT owner_id, profile FROM billing_profiles
		WHERE (vat_state = 'unchecked' OR vat_state = 'valid' AND vat_by_vies) AND vat_next_at <= $1
		ORDER BY vat_next_at, owner_id LIMIT $2`, ps.clock.Now(), limit)
	list, err := db.Collect(rows, err, func(s db.Scanner) (n Number, err error) {
		var text string
		if err := s.Scan(&n.Owner, &text); err != nil {
			return n, err
		}
		err = json.Unmarshal([]byte(text), &n.Party)
		if p := n.Party; InVIES(p.VATID) && p.VATID[:2] == strings.Replace(p.Country, "GR", "EL", 1) {
			n.VATID = p.VATID
		}
		return n, err
	})
	if err != nil {
		return nil, fmt.Errorf("list unchecked VAT numbers: %w", err)
	}
	return list, nil
}

// CheckedTx records VIES's answer, unless the profile changed or the operator decided meanwhile.
func (ps *Parties) CheckedTx(ctx context.Context, tx *db.Tx, n Number, v Verdict) error {
	if err := LockTx(ctx, tx, n.Owner); err != nil {
		return err
	}
	p, err := ps.Profile(ctx, tx, n.Owner)
	if err != nil || p.VAT != VATUnchecked && (p.VAT != VATValid || !p.ByVIES) {
		return err
	}
	now := ps.clock.Now()
	switch {
	case !p.same(n.Party):
		return nil // the new number is checked separately
	case !v.Known:
		if p.VAT == VATValid && now > p.CheckedAt.Add(keepVerdict) {
			p.VAT = VATUnchecked
		}
		return ps.writeProfileTx(ctx, tx, n.Owner, p, v.Again)
	case !v.Valid:
		p.VAT = VATInvalid
	case v.Found.is(p.Party):
		p.VAT = VATValid
	default:
		p.VAT = VATUnconfirmed
	}
	p.CheckedAt, p.Consultation, p.ByVIES, p.Found = now, v.Consultation, true, v.Found
	return ps.writeProfileTx(ctx, tx, n.Owner, p, now.Add(askAgain))
}

// is reports whether the holder matches the party: the names have the same words in any order, and the party's address
// contains all words of the holder's. The number's existence proves nothing, since anybody can copy it from a website.
func (f Found) is(p Party) bool {
	name, address := words(f.Name), words(p.Address)
	return len(name) > 0 && slices.Equal(name, words(p.Name)) && len(words(f.Address)) > 0 &&
		!slices.ContainsFunc(words(f.Address), func(w string) bool { return !slices.Contains(address, w) })
}

// words returns the sorted words of s without case, accents and punctuation.
func words(s string) []string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Mn, r) || r == '.' || r == '\'':
			return -1
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return ' '
	}, norm.NFKD.String(s))
	list := strings.Fields(s)
	slices.Sort(list)
	return list
}
