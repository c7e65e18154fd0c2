package billing

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
)

// Party is who sells or buys, as invoices show it.
type Party struct {
	Name    string `json:"name"`
	Address string `json:"address"` // lines
	Country string `json:"country"` // ISO 3166, two capitals
	VATID   string `json:"vatId"`
	Email   string `json:"email"`
}

// Settings say on which terms a seller sells.
type Settings struct {
	Seller        Party
	Payment       string           // how to pay, such as the number of a bank account
	Note          string           // below every invoice. Optional.
	Taxes         map[string]int64 // basis points by country
	OSS           bool             // whether consumers of other EU countries pay their country's tax
	DueDays       int64            // after an invoice is final
	GraceDays     int64            // past the due date until sites are paused
	PausedDays    int64            // until a subscription that stays unpaid ends
	FinalizeHours int64            // between an invoice's draft and its number
	Cards         string           // whether a subscription takes a card: required (also empty) or optional. Where none are accepted it takes none.
}

// Whether a subscription takes a card.
const (
	CardsRequired = "required"
	CardsOptional = "optional"
)

// DefaultSettings hold where the operator said nothing.
func DefaultSettings() Settings {
	return Settings{DueDays: 14, GraceDays: 14, PausedDays: 30, FinalizeHours: 1}
}

var country = lazyregexp.New(`^[A-Z]{2}$`)

func oneOfLines(s string, lines, most int) bool {
	if len(s) > most || strings.Count(s, "\n") >= lines {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) < 0
}

func (p Party) check(required bool) error {
	switch {
	case required && strings.TrimSpace(p.Name) == "" || !oneOfLines(p.Name, 1, 200):
		return invalid("name", "name must have 1 to 200 characters on one line", p.Name)
	case !oneOfLines(p.Address, 6, 600):
		return invalid("address", "address must have at most 6 lines and 600 characters", nil)
	case p.Country == "" && required || p.Country != "" && !country.MatchString(p.Country):
		return invalid("country", "country must be two capital letters (ISO 3166), such as DE", p.Country)
	case p.VATID != "" && !vatID.MatchString(p.VATID):
		return invalid("vatId", "a VAT number begins with the country's two letters, such as DE123456789, without spaces", p.VATID)
	case !oneOfLines(p.Email, 1, 254) || p.Email != "" && !strings.Contains(p.Email, "@"):
		return invalid("email", "email must be an email address", p.Email)
	}
	return nil
}

func (s Settings) check() error {
	if err := s.Seller.check(true); err != nil {
		return err
	}
	if !oneOfLines(s.Payment, 8, 1000) {
		return invalid("payment", "payment must have at most 8 lines and 1000 characters", nil)
	}
	if !oneOfLines(s.Note, 8, 1000) {
		return invalid("note", "note must have at most 8 lines and 1000 characters", nil)
	}
	if s.Cards != "" && s.Cards != CardsRequired && s.Cards != CardsOptional {
		return invalid("cards", "cards must be required or optional", s.Cards)
	}
	for c, n := range s.Taxes {
		if !country.MatchString(c) || n < 0 || n > 10_000 {
			return invalid("taxes", "taxes are basis points, 0 to 10000, by country: {\"DE\": 1900}", c)
		}
	}
	for _, x := range []struct {
		name    string
		n, most int64
	}{{"dueDays", s.DueDays, 90}, {"graceDays", s.GraceDays, 90}, {"pausedDays", s.PausedDays, 365}, {"finalizeHours", s.FinalizeHours, 72}} {
		if x.n < 0 || x.n > x.most {
			return invalid(x.name, fmt.Sprintf("%s must be 0 to %d", x.name, x.most), x.n)
		}
	}
	return nil
}

// SaveSettingsTx replaces a seller's settings. Invoices that are final keep what they say.
func (b *Billing) SaveSettingsTx(ctx context.Context, tx *db.Tx, seller string, s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_settings (seller_id, settings, updated_at) VALUES ($1, $2, $3)
		ON CONFLICT (seller_id) DO UPDATE SET settings = excluded.settings, updated_at = excluded.updated_at`, seller, string(text), b.now()); err != nil {
		return fmt.Errorf("write billing settings: %w", err)
	}
	return nil
}

// Settings returns a seller's settings, or the defaults.
func (b *Billing) Settings(ctx context.Context, r db.Reader, seller string) (Settings, error) {
	s := DefaultSettings()
	var text string
	err := r.QueryRow(ctx, `SELECT settings FROM billing_settings WHERE seller_id = $1`, seller).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &s)
	}
	if err != nil {
		return s, fmt.Errorf("read billing settings: %w", err)
	}
	return s, nil
}

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
func (b *Billing) Profile(ctx context.Context, r db.Reader, owner id.Owner) (p Profile, err error) {
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
func (b *Billing) SaveProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Party) (Profile, error) {
	if err := p.check(true); err != nil {
		return Profile{}, err
	}
	if err := lockTx(ctx, tx, owner); err != nil {
		return Profile{}, err
	}
	was, err := b.Profile(ctx, tx, owner)
	if err != nil {
		return Profile{}, err
	}
	is := Profile{Party: p, VAT: was.VAT}
	if p.VATID == "" {
		is.VAT = VATNone
	} else if p.VATID != was.VATID || p.Country != was.Country || p.Name != was.Name {
		is.VAT = VATUnchecked
	}
	return is, b.writeProfileTx(ctx, tx, owner, is)
}

// VerifyVATTx keeps what the operator found out about an owner's VAT number.
func (b *Billing) VerifyVATTx(ctx context.Context, tx *db.Tx, owner id.Owner, valid bool) (Profile, error) {
	if err := lockTx(ctx, tx, owner); err != nil {
		return Profile{}, err
	}
	p, err := b.Profile(ctx, tx, owner)
	if err != nil {
		return p, err
	}
	if p.VATID == "" {
		return p, conflict("no_vat_id", "The owner has no VAT number", "it is given in the billing profile")
	}
	if p.VAT = VATInvalid; valid {
		p.VAT = VATValid
	}
	return p, b.writeProfileTx(ctx, tx, owner, p)
}

func (b *Billing) writeProfileTx(ctx context.Context, tx *db.Tx, owner id.Owner, p Profile) error {
	text, err := json.Marshal(p.Party)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE billing_profiles SET profile = $2, vat_state = $3, updated_at = $4 WHERE owner_id = $1`,
		owner, string(text), p.VAT, b.now()); err != nil {
		return fmt.Errorf("write billing profile: %w", err)
	}
	return nil
}
