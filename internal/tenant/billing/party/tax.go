package party

import (
	"slices"
	"strings"

	"slipway/internal/tenant/money"
)

// eu lists the countries with reverse charge for businesses (Directive 2006/112/EC, article 196). Greek VAT numbers
// begin with EL.
var eu = strings.Fields("AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK")

// Tax is the tax added to a net amount.
type Tax struct {
	Country     string // the country whose tax it is
	BasisPoints int64
	Note        string // text required on the invoice
}

// TaxOf returns the tax that a seller charges a buyer.
//
// A buyer in the seller's country pays that country's tax. A business elsewhere in the EU with a verified VAT number
// pays none (reverse charge); with an unverified number it counts as a consumer. Consumers elsewhere in the EU pay
// their own country's tax if the seller uses the one-stop shop, otherwise the seller's (below the threshold of article
// 59c). Buyers outside the EU pay none.
func TaxOf(s Settings, buyer Profile) Tax {
	from, to := s.Seller.Country, buyer.Country
	if to == "" {
		to = from // the buyer's country is unknown
	}
	in := func(c string) bool { return slices.Contains(eu, c) }
	switch {
	case from == "":
		return Tax{}
	case from == to:
		return Tax{Country: from, BasisPoints: s.Taxes[from]}
	case !in(from) || !in(to):
		return Tax{}
	case buyer.VAT == VATValid:
		return Tax{Country: to, Note: "Reverse charge: the recipient accounts for the VAT (article 196 of Directive 2006/112/EC)."}
	case s.OSS:
		return Tax{Country: to, BasisPoints: s.Taxes[to]}
	}
	return Tax{Country: from, BasisPoints: s.Taxes[from]}
}

// TaxFor is [TaxOf] with a note if a business elsewhere in the EU pays tax only because its VAT number isn't verified.
func TaxFor(s Settings, buyer Profile) Tax {
	t, checked := TaxOf(s, buyer), buyer
	checked.VAT = VATValid
	if buyer.VATID != "" && buyer.VAT != VATValid && TaxOf(s, checked).Note != "" {
		t.Note = "VAT is charged because the VAT number " + buyer.VATID + " is not verified."
	}
	return t
}

// On returns the tax on a net amount, computed once for the sum of all lines (EN 16931, BR-CO-17).
func (t Tax) On(net int64) (int64, error) { return money.Percent(net, t.BasisPoints) }
