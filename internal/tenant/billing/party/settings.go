package party

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/text"
)

// Party is a seller or buyer as invoices show it.
type Party struct {
	Name    string `json:"name"`
	Address string `json:"address"` // lines
	Country string `json:"country"` // ISO 3166, two capitals
	VATID   string `json:"vatId"`
	Email   string `json:"email"`
}

// Settings are the terms of a seller.
type Settings struct {
	Seller     Party
	Payment    string           // payment instructions, such as a bank account
	Note       string           // printed below every invoice. Optional.
	Taxes      map[string]int64 // basis points by country
	OSS        bool             // whether consumers in other EU countries pay their own country's tax
	DueDays    int64            // days from finalization to the due date
	GraceDays  int64            // days from the due date until sites are paused
	PausedDays int64            // days from then until an unpaid subscription ends
	// DeleteAfterDays is the number of days from then until the account's sites are backed up and deleted. 0 means
	// never.
	DeleteAfterDays int64
	FinalizeHours   int64 // hours between an invoice's draft and its number
	VIES            bool  // whether customers' VAT numbers are checked with VIES
	// Cards says whether a subscription needs a card. Empty means required. It is ignored if no provider accepts cards.
	Cards string
}

const (
	CardsRequired = "required"
	CardsOptional = "optional"
)

// DefaultSettings returns the settings used unless the operator sets others.
func DefaultSettings() Settings {
	return Settings{DueDays: 14, GraceDays: 14, PausedDays: 30, FinalizeHours: 1}
}

// LeastDeleteAfterDays is the minimum number of days between the first notice and the deletion of an account's sites.
const LeastDeleteAfterDays = 14

var country = lazyregexp.New(`^[A-Z]{2}$`)

func (p Party) check(required bool) error {
	switch {
	case required && strings.TrimSpace(p.Name) == "" || !text.Fits(p.Name, 1, 200):
		return fault.InvalidField("name", "name must have 1 to 200 characters on one line", p.Name)
	case !text.Fits(p.Address, 6, 600):
		return fault.InvalidField("address", "address must have at most 6 lines and 600 characters", nil)
	case p.Country == "" && required || p.Country != "" && !country.MatchString(p.Country):
		return fault.InvalidField("country", "country must be two capital letters (ISO 3166), such as DE", p.Country)
	case !text.Fits(p.Email, 1, 254) || p.Email != "" && !strings.Contains(p.Email, "@"):
		return fault.InvalidField("email", "email must be an email address", p.Email)
	}
	if p.VATID != "" {
		return checkVAT(p.VATID)
	}
	return nil
}

func (s Settings) check() error {
	if err := s.Seller.check(true); err != nil {
		return err
	}
	if !text.Fits(s.Payment, 8, 1000) {
		return fault.InvalidField("payment", "payment must have at most 8 lines and 1000 characters", nil)
	}
	if !text.Fits(s.Note, 8, 1000) {
		return fault.InvalidField("note", "note must have at most 8 lines and 1000 characters", nil)
	}
	if s.VIES && !InVIES(s.Seller.VATID) {
		return fault.InvalidField("vies", "vies needs an EU VAT number as the seller's vatId, since VIES asks for it", s.Seller.VATID)
	}
	if s.Cards != "" && s.Cards != CardsRequired && s.Cards != CardsOptional {
		return fault.InvalidField("cards", "cards must be required or optional", s.Cards)
	}
	for c, n := range s.Taxes {
		if !country.MatchString(c) || n < 0 || n > 10_000 {
			return fault.InvalidField("taxes", "taxes are basis points, 0 to 10000, by country: {\"DE\": 1900}", c)
		}
	}
	if s.DeleteAfterDays != 0 && (s.DeleteAfterDays < LeastDeleteAfterDays || s.DeleteAfterDays > 3650) {
		return fault.InvalidField("deleteAfterDays",
			fmt.Sprintf("deleteAfterDays must be %d to 3650, or 0: nothing is deleted", LeastDeleteAfterDays), s.DeleteAfterDays)
	}
	for _, x := range []struct {
		name    string
		n, most int64
	}{{"dueDays", s.DueDays, 90}, {"graceDays", s.GraceDays, 90}, {"pausedDays", s.PausedDays, 365}, {"finalizeHours", s.FinalizeHours, 72}} {
		if x.n < 0 || x.n > x.most {
			return fault.InvalidField(x.name, fmt.Sprintf("%s must be 0 to %d", x.name, x.most), x.n)
		}
	}
	return nil
}

// SaveSettingsTx replaces a seller's settings. Final invoices don't change.
func (ps *Parties) SaveSettingsTx(ctx context.Context, tx *db.Tx, seller string, s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
		INSERT INTO billing_settings (seller_id, settings, updated_at) VALUES ($1, $2, $3)
		ON CONFLICT (seller_id) DO UPDATE
		SET settings = excluded.settings, updated_at = excluded.updated_at`, seller, string(text), ps.clock.Now()); err != nil {
		return fmt.Errorf("write billing settings: %w", err)
	}
	return nil
}

// SellerOf returns the owner's seller: a reseller's ID (package seller), or "" for the installation.
func SellerOf(ctx context.Context, r db.Reader, owner id.Owner) (seller string, err error) {
	err = r.QueryRow(ctx, `SELECT seller_id FROM owner_sellers WHERE owner_id = $1`, owner).Scan(&seller)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("find seller: %w", err)
	}
	return seller, nil
}

// Series returns the prefix of a seller's invoice numbers, which is empty for the installation.
func (ps *Parties) Series(ctx context.Context, r db.Reader, seller string) (series string, err error) {
	if seller == "" {
		return "", nil
	}
	if err := r.QueryRow(ctx, `SELECT series FROM sellers WHERE id = $1`, seller).Scan(&series); err != nil {
		return "", fmt.Errorf("read series of seller: %w", err)
	}
	return series + "-", nil
}

// SettingsFor returns the settings of the owner's seller.
func (ps *Parties) SettingsFor(ctx context.Context, r db.Reader, owner id.Owner) (Settings, error) {
	seller, err := SellerOf(ctx, r, owner)
	if err != nil {
		return Settings{}, err
	}
	return ps.Settings(ctx, r, seller)
}

// Settings returns a seller's settings. A reseller without settings uses the installation's, which default to
// [DefaultSettings].
func (ps *Parties) Settings(ctx context.Context, r db.Reader, seller string) (Settings, error) {
	s := DefaultSettings()
	var text string
	err := r.QueryRow(ctx, `
		SELECT settings FROM billing_settings WHERE seller_id = $1 OR seller_id = '' ORDER BY seller_id DESC LIMIT 1`, seller).Scan(&text)
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

// fileMost caps the size of an operator's file in bytes.
const fileMost = 64 << 10

// ReadSettings reads a seller's settings from JSON. Missing fields keep their defaults.
func ReadSettings(r io.Reader) (Settings, error) {
	s := DefaultSettings()
	f := struct {
		Seller        *Party            `json:"seller"`
		Payment       *string           `json:"payment"`
		Note          *string           `json:"note"`
		Taxes         *map[string]int64 `json:"taxes"`
		OSS           *bool             `json:"oss"`
		DueDays       *int64            `json:"dueDays"`
		GraceDays     *int64            `json:"graceDays"`
		PausedDays    *int64            `json:"pausedDays"`
		DeleteAfter   *int64            `json:"deleteAfterDays"`
		FinalizeHours *int64            `json:"finalizeHours"`
		VIES          *bool             `json:"vies"`
		Cards         *string           `json:"cards"`
	}{
		&s.Seller, &s.Payment, &s.Note, &s.Taxes, &s.OSS, &s.DueDays, &s.GraceDays, &s.PausedDays, &s.DeleteAfterDays, &s.FinalizeHours,
		&s.VIES, &s.Cards,
	}
	if err := ReadFile(r, &f); err != nil {
		return s, err
	}
	return s, s.check()
}

// ReadFile decodes one JSON object of at most 64 KiB and refuses unknown fields.
func ReadFile(r io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, fileMost+1))
	if err != nil {
		return err
	}
	if len(text) > fileMost {
		return fmt.Errorf("the file is larger than %d bytes", fileMost)
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("the file is invalid: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one JSON object")
	}
	return nil
}
