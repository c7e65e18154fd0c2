package party

import (
	"testing"
)

// The tax rate comes from the operator's table. An unchecked VAT number doesn't allow reverse charge.
func TestTaxes(t *testing.T) {
	t.Parallel()
	s := Settings{Seller: Party{Country: "DE"}, Taxes: map[string]int64{"DE": 1900, "FR": 2000}}
	oss := s
	oss.OSS = true
	buyer := func(country string, state VATState) Profile {
		return Profile{Party: Party{Country: country}, VAT: state}
	}
	for name, tt := range map[string]struct {
		s      Settings
		buyer  Profile
		points int64
		note   bool
	}{
		"same country":          {s, buyer("DE", VATValid), 1900, false},
		"nothing is known":      {s, buyer("", VATNone), 1900, false},
		"business":              {s, buyer("FR", VATValid), 0, true},
		"not checked":           {s, buyer("FR", VATUnchecked), 1900, false},
		"not valid, OSS":        {oss, buyer("FR", VATInvalid), 2000, false},
		"consumer":              {s, buyer("FR", VATNone), 1900, false},
		"consumer, OSS":         {oss, buyer("FR", VATNone), 2000, false},
		"elsewhere":             {oss, buyer("US", VATNone), 0, false},
		"seller outside the EU": {Settings{Seller: Party{Country: "CH"}, Taxes: map[string]int64{"CH": 810}}, buyer("FR", VATValid), 0, false},
		"no seller":             {Settings{}, buyer("FR", VATNone), 0, false},
	} {
		if got := TaxOf(tt.s, tt.buyer); got.BasisPoints != tt.points || (got.Note != "") != tt.note {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
