package billing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// fileMost bounds a file of the operator's.
const fileMost = 64 << 10

// ReadTerms reads a version of a plan that an operator wrote as JSON:
//
//	{"plan": "pro", "title": "Pro", "currency": "EUR", "interval": "month", "amount": 1900, "trialDays": 14, "public": true,
//	 "limits": {"sites": 10}, "rates": {"bandwidth.bytes": {"included": 107374182400, "tiers": [{"amount": 45, "per": 10737418240}]}}}
func ReadTerms(r io.Reader) (Terms, error) {
	type tier struct {
		UpTo   int64 `json:"upTo"`
		Amount int64 `json:"amount"`
		Per    int64 `json:"per"`
	}
	var f struct {
		Plan      string                `json:"plan"`
		Title     string                `json:"title"`
		Currency  money.Currency        `json:"currency"`
		Interval  Term                  `json:"interval"`
		Amount    int64                 `json:"amount"`
		TrialDays int64                 `json:"trialDays"`
		Public    bool                  `json:"public"`
		Cost      int64                 `json:"cost"`
		Limits    map[limits.Name]int64 `json:"limits"`
		Features  *[]string             `json:"features"`
		Rates     map[usage.Meter]struct {
			Included int64  `json:"included"`
			Tiers    []tier `json:"tiers"`
		} `json:"rates"`
	}
	if err := readFile(r, &f); err != nil {
		return Terms{}, err
	}
	t := Terms{
		Plan: f.Plan, Title: f.Title, Currency: f.Currency, Term: f.Interval, Amount: f.Amount, TrialDays: f.TrialDays, Public: f.Public, Cost: f.Cost,
		Limits: f.Limits, Rates: map[usage.Meter]money.Rate{},
	}
	if f.Features != nil {
		if err := t.only(*f.Features); err != nil {
			return t, err
		}
	}
	for m, x := range f.Rates {
		rate := money.Rate{Included: x.Included}
		for _, y := range x.Tiers {
			rate.Tiers = append(rate.Tiers, money.Tier(y))
		}
		t.Rates[m] = rate
	}
	return t, t.check()
}

// ReadSettings reads a seller's settings that an operator wrote as JSON. What it doesn't say is the default.
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
		FinalizeHours *int64            `json:"finalizeHours"`
		Cards         *string           `json:"cards"`
	}{&s.Seller, &s.Payment, &s.Note, &s.Taxes, &s.OSS, &s.DueDays, &s.GraceDays, &s.PausedDays, &s.FinalizeHours, &s.Cards}
	if err := readFile(r, &f); err != nil {
		return s, err
	}
	return s, s.check()
}

// readFile reads one JSON object that has no unknown fields.
func readFile(r io.Reader, into any) error {
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
		return fmt.Errorf("the file is not as it should be: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the file has more than one JSON object")
	}
	return nil
}
