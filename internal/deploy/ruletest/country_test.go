package ruletest

import (
	"testing"

	"slipway/internal/platform/fault"
)

// Without a country database, a test with a country is rejected, because rules with countries never apply.
func TestRuleTestNeedsCountries(t *testing.T) {
	t.Parallel()
	r := New(Config{})
	if _, err := r.request(&Trial{Path: "/", Country: "de"}); fault.As(err) == nil || fault.As(err).Code != "no_countries" {
		t.Errorf("without a database: %v", err)
	}
	r.c.Countries = true
	if q, err := r.request(&Trial{Path: "/", Country: "de"}); err != nil || q.Country != "DE" {
		t.Errorf("with one: %+v, %v", q, err)
	}
}
