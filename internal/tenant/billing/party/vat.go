package party

import (
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
)

// vatForm is the format of a country's VAT numbers after the two letters.
type vatForm struct {
	form    *lazyregexp.Regexp
	example string
}

// vatForms holds the formats of the EU and Northern Ireland by prefix, as VIES documents them.
var vatForms = map[string]vatForm{
	"AT": {lazyregexp.New(`^U\d{8}$`), "ATU12345678"},
	"BE": {lazyregexp.New(`^[01]\d{9}$`), "BE0123456789"},
	"BG": {lazyregexp.New(`^\d{9,10}$`), "BG123456789"},
	"CY": {lazyregexp.New(`^\d{8}[A-Z]$`), "CY12345678X"},
	"CZ": {lazyregexp.New(`^\d{8,10}$`), "CZ12345678"},
	"DE": {lazyregexp.New(`^\d{9}$`), "DE123456789"},
	"DK": {lazyregexp.New(`^\d{8}$`), "DK12345678"},
	"EE": {lazyregexp.New(`^\d{9}$`), "EE123456789"},
	"EL": {lazyregexp.New(`^\d{9}$`), "EL123456789"},
	"ES": {lazyregexp.New(`^([A-Z]\d{7}[A-Z0-9]|\d{8}[A-Z])$`), "ESX1234567X"},
	"FI": {lazyregexp.New(`^\d{8}$`), "FI12345678"},
	"FR": {lazyregexp.New(`^[A-HJ-NP-Z0-9]{2}\d{9}$`), "FR12345678901"},
	"HR": {lazyregexp.New(`^\d{11}$`), "HR12345678901"},
	"HU": {lazyregexp.New(`^\d{8}$`), "HU12345678"},
	"IE": {lazyregexp.New(`^(\d{7}[A-Z]{1,2}|\d[A-Z+*]\d{5}[A-Z])$`), "IE1234567X"},
	"IT": {lazyregexp.New(`^\d{11}$`), "IT12345678901"},
	"LT": {lazyregexp.New(`^(\d{9}|\d{12})$`), "LT123456789"},
	"LU": {lazyregexp.New(`^\d{8}$`), "LU12345678"},
	"LV": {lazyregexp.New(`^\d{11}$`), "LV12345678901"},
	"MT": {lazyregexp.New(`^\d{8}$`), "MT12345678"},
	"NL": {lazyregexp.New(`^\d{9}B\d{2}$`), "NL123456789B01"},
	"PL": {lazyregexp.New(`^\d{10}$`), "PL1234567890"},
	"PT": {lazyregexp.New(`^\d{9}$`), "PT123456789"},
	"RO": {lazyregexp.New(`^\d{2,10}$`), "RO1234567890"},
	"SE": {lazyregexp.New(`^\d{12}$`), "SE123456789012"},
	"SI": {lazyregexp.New(`^\d{8}$`), "SI12345678"},
	"SK": {lazyregexp.New(`^\d{10}$`), "SK1234567890"},
	"XI": {lazyregexp.New(`^(\d{9}|\d{12}|GD\d{3}|HA\d{3})$`), "XI123456789"},
}

// vatID is the format of VAT numbers elsewhere.
var vatID = lazyregexp.New(`^[A-Z]{2}[A-Z0-9]{2,13}$`)

// checkVAT refuses malformed VAT numbers. It doesn't know whether the number was issued.
func checkVAT(s string) error {
	if len(s) > 2 {
		if f, known := vatForms[s[:2]]; known {
			if f.form.MatchString(s[2:]) {
				return nil
			}
			return fault.InvalidField("vatId", "a VAT number that begins with "+s[:2]+" has the form "+f.example, s)
		}
	}
	if !vatID.MatchString(s) {
		return fault.InvalidField("vatId", "a VAT number begins with the country's two letters, such as DE123456789, without spaces", s)
	}
	return nil
}
