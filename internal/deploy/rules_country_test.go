package deploy

import (
	"testing"

	"slipway/internal/fault"
)

// A country is refused where no database tells visitors' countries: its rules never apply there.
func TestRuleTestNeedsCountries(t *testing.T) {
	t.Parallel()
	d := &Deployments{}
	if _, err := d.testRequest(&RuleTest{Path: "/", Country: "de"}); fault.As(err) == nil || fault.As(err).Code != "no_countries" {
		t.Errorf("without a database: %v", err)
	}
	d.c.Countries = true
	if q, err := d.testRequest(&RuleTest{Path: "/", Country: "de"}); err != nil || q.Country != "DE" {
		t.Errorf("with one: %+v, %v", q, err)
	}
}
