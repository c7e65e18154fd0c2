// Package document owns what invoices and credit notes say: the JSON that is stored once and shown forever, and the PDF that is
// printed from it.
//
// The same document always gives the same PDF, to the byte.
package document

import (
	"bytes"
	"encoding/json"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing/party"
	"slipway/internal/tenant/billing/plan"
	"slipway/internal/tenant/money"
)

// The kinds of lines.
const (
	Base     = "base"     // a period in advance
	Unused   = "unused"   // what is left of a period, credited
	Rest     = "rest"     // what is left of a period, charged
	Usage    = "usage"    // what was used beyond what is included
	Cap      = "cap"      // what of it exceeds the budget, and is not charged
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
	Tier     int            `json:"tier,omitempty"` // from 1
	Quantity int64          `json:"quantity,omitempty"`
	Digest   string         `json:"digest,omitempty"` // SHA-256 of the usage that it charges
}

// Document is what an invoice or a credit note says, as it is stored once and shown forever.
type Document struct {
	Layout   int            `json:"layout"` // of the PDF
	ID       string         `json:"id"`
	Kind     string         `json:"kind"` // invoice or credit_note
	Number   string         `json:"number"`
	Corrects string         `json:"corrects,omitempty"` // the number of the invoice that a credit note corrects
	IssuedAt string         `json:"issuedAt"`
	DueAt    string         `json:"dueAt,omitempty"`
	Seller   party.Party    `json:"seller"`
	Buyer    party.Party    `json:"buyer"`
	Currency money.Currency `json:"currency"`
	Lines    []Line         `json:"lines"`
	Net      int64          `json:"net"`
	TaxRate  Tax            `json:"tax"`
	Total    int64          `json:"total"`
	Credit   int64          `json:"credit"`            // that paid a part at once; negative: carried over from earlier invoices
	Carried  int64          `json:"carried,omitempty"` // to the next invoice
	Due      int64          `json:"due"`
	Payment  string         `json:"payment"`
	Note     string         `json:"note"`
}

// Tax is the tax that a document adds.
type Tax struct {
	Country     string `json:"country"`
	BasisPoints int64  `json:"basisPoints"`
	Amount      int64  `json:"amount"`
	Note        string `json:"note"`
}

// Layout is the version of how documents are shown.
const Layout = 1

// Bytes returns the document as it is stored.
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
