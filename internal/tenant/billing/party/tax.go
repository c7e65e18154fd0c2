package party

import (
	"slices"
	"strings"

	"slipway/internal/tenant/money"
)

// eu are the countries whose businesses account for the tax themselves (Directive 2006/112/EC, article 196). Greece's VAT
// numbers begin with EL.
var eu = strings.Fields("AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK")

// Tax is what is added to a net amount.
type Tax struct {
	Country     string // whose
	BasisPoints int64
	Note        string // what the invoice must say
}

// TaxOf decides which tax a seller adds for a buyer.
//
// In the seller's country it is that country's. A business elsewhere in the EU whose VAT number was verified pays it there; one
// whose number is not verified is treated as a consumer. Consumers in the EU pay their own country's tax where the seller takes part
// in the one-stop shop, else the seller's (below the threshold of article 59c). Elsewhere there is none.
func TaxOf(s Settings, buyer Profile) Tax {
	from, to := s.Seller.Country, buyer.Country
	if to == "" {
		to = from // nothing is known of the buyer
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

// TaxFor is TaxOf with the reason why a business elsewhere in the EU pays tax: its number isn't verified.
func TaxFor(s Settings, buyer Profile) Tax {
	t, checked := TaxOf(s, buyer), buyer
	if checked.VAT = VATValid; buyer.VATID != "" && buyer.VAT != VATValid && TaxOf(s, checked).Note != "" {
		t.Note = "VAT is charged because the VAT number " + buyer.VATID + " is not verified."
	}
	return t
}

// On returns the tax on a net amount: once for the sum of all lines (EN 16931, BR-CO-17).
func (t Tax) On(net int64) (int64, error) { return money.Percent(net, t.BasisPoints) }
