// Package document owns the content of invoices and credit notes: the JSON that is stored once, and the PDF rendered
// from it.
//
// The same document always yields the same PDF, byte for byte.
package document

import (
	"bytes"
	"encoding/json"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

const (
	Base     = "base"     // a period in advance
	Unused   = "unused"   // rest of a period, credited
	Rest     = "rest"     // rest of a period, charged
	Usage    = "usage"    // usage beyond the included amount
	Cap      = "cap"      // usage beyond the budget, not charged
	Credit   = "credit"   // of a credit note
	Discount = "discount" // by a coupon
)

// Line is a line of an invoice. Its amount is without tax.
type Line struct {
	Kind     string         `json:"kind"`
	Text     string         `json:"text"`
	Amount   int64          `json:"amount"`
	Plan     string         `json:"plan"`
	Version  plan.VersionID `json:"version"`
	From     string         `json:"from"`
	To       string         `json:"to"`
	Meter    string         `json:"meter,omitempty"`
	Tier     int            `json:"tier,omitempty"` // counted from 1
	Quantity int64          `json:"quantity,omitempty"`
	Digest   string         `json:"digest,omitempty"` // SHA-256 of the usage charged
}

// Document is the content of an invoice or credit note. It never changes.
type Document struct {
	Layout   int            `json:"layout"` // version of the PDF's layout
	ID       string         `json:"id"`
	Kind     string         `json:"kind"` // invoice or credit_note
	Number   string         `json:"number"`
	Corrects string         `json:"corrects,omitempty"` // number of the invoice that a credit note corrects
	IssuedAt string         `json:"issuedAt"`
	DueAt    string         `json:"dueAt,omitempty"`
	Seller   party.Party    `json:"seller"`
	Buyer    party.Party    `json:"buyer"`
	Currency money.Currency `json:"currency"`
	Lines    []Line         `json:"lines"`
	Net      int64          `json:"net"`
	TaxRate  Tax            `json:"tax"`
	Total    int64          `json:"total"`
	Credit   int64          `json:"credit"`            // credit used; negative if earlier invoices were carried over
	Carried  int64          `json:"carried,omitempty"` // carried over to the next invoice
	Due      int64          `json:"due"`
	Payment  string         `json:"payment"`
	Note     string         `json:"note"`
}

type Tax struct {
	Country     string `json:"country"`
	BasisPoints int64  `json:"basisPoints"`
	Amount      int64  `json:"amount"`
	Note        string `json:"note"`
}

// Layout is the current layout version.
const Layout = 1

// Bytes returns the JSON to store.
func (d Document) Bytes() ([]byte, error) {
	if d.Lines == nil {
		d.Lines = []Line{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(d); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func readDocument(text []byte) (d Document, issued db.Time, err error) {
	if err = json.Unmarshal(text, &d); err != nil {
		return d, 0, err
	}
	issued, err = parseTime(d.IssuedAt)
	return d, issued, err
}
