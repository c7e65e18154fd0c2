package party

import (
	"testing"

	"slipway/internal/platform/fault"
)

// Every EU country has a VAT number format whose example is valid. A shorter or longer one isn't.
func TestVATForms(t *testing.T) {
	t.Parallel()
	for _, c := range eu {
		if c == "GR" {
			c = "EL"
		}
		if _, ok := vatForms[c]; !ok {
			t.Errorf("%s has no form", c)
		}
	}
	for c, f := range vatForms {
		if f.example[:2] != c || checkVAT(f.example) != nil {
			t.Errorf("%s: its example is refused: %v", c, checkVAT(f.example))
		}
		if checkVAT(f.example[:len(f.example)-1]) == nil && c != "RO" { // Romanian numbers vary in length
			t.Errorf("%s without its last character is good", f.example)
		}
		if checkVAT(f.example+"0000") == nil {
			t.Errorf("%s0000 is good", f.example)
		}
	}
	for s, good := range map[string]bool{
		"DE123456789": true, "de123456789": false, "DE 12345678": false, "DE1234567890": false, "DEABCDEFGHI": false,
		"FRXX123456789": true, "FRIO123456789": false, "IE1234567WA": true, "IE1+23456X": true, "IE1+2345X": false,
		"NL123456789B01": true, "NL123456789A01": false, "ESB12345678": true, "ES12345678Z": true, "GRX": false, "GR123456789": true, "EL12345678": false,
		"XIGD001": true, "CHE123456789": true, "GB123456789": true, "": false, "D": false, "DE": false, "not one": false, "US\n12": false,
	} {
		err := checkVAT(s)
		if (err == nil) != good {
			t.Errorf("%q: %v", s, err)
		}
		if err != nil && fault.As(err).Code != "invalid_vat_id" {
			t.Errorf("%q: %v", s, fault.As(err).Code)
		}
	}
}
