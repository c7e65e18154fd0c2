package plan

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"slipway/internal/platform/fault"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/money"
	"slipway/internal/tenant/usage"
)

// ReadTerms reads a plan version from JSON:
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
	if err := party.ReadFile(r, &f); err != nil {
		return Terms{}, err
	}
	t := Terms{
		Plan: f.Plan, Title: f.Title, Currency: f.Currency, Term: f.Interval, Amount: f.Amount, TrialDays: f.TrialDays, Public: f.Public,
		Cost:   f.Cost,
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

// features maps a plan's feature names to the limits that are 0 unless the plan includes the feature.
var features = map[string][]limits.Name{
	"wordpress": {limits.WordPress}, "previews": {limits.Previews}, "team": {limits.Teams}, "custom_domains": {limits.Domains},
}

// Features returns the names of the version's features.
func (t Terms) Features() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(features)) {
		if n, limited := t.Limits[features[name][0]]; !limited || n > 0 {
			list = append(list, name)
		}
	}
	return list
}

// only sets the limits of all features not named to 0.
func (t *Terms) only(named []string) error {
	for _, name := range named {
		if features[name] == nil {
			return fault.InvalidField("features", fmt.Sprintf("%q is not a feature; there are custom_domains, previews, team and wordpress", name),
				name)
		}
	}
	for name, zero := range features {
		if slices.Contains(named, name) {
			continue
		}
		for _, l := range zero {
			if t.Limits[l] > 0 {
				return fault.InvalidField("features", fmt.Sprintf("the plan limits %s but doesn't include the feature %s", l, name), name)
			}
			if t.Limits == nil {
				t.Limits = map[limits.Name]int64{}
			}
			t.Limits[l] = 0
		}
	}
	return nil
}
