package billing

import (
	"bytes"
	"encoding/json"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/money"
)

// Document is what an invoice or a credit note says, as it is stored once and shown forever.
type Document struct {
	Layout   int            `json:"layout"` // of the PDF
	ID       InvoiceID      `json:"id"`
	Kind     string         `json:"kind"` // invoice or credit_note
	Number   string         `json:"number"`
	Corrects string         `json:"corrects,omitempty"` // the number of the invoice that a credit note corrects
	IssuedAt string         `json:"issuedAt"`
	DueAt    string         `json:"dueAt,omitempty"`
	Seller   Party          `json:"seller"`
	Buyer    Party          `json:"buyer"`
	Currency money.Currency `json:"currency"`
	Lines    []Line         `json:"lines"`
	Net      int64          `json:"net"`
	TaxRate  taxLine        `json:"tax"`
	Total    int64          `json:"total"`
	Credit   int64          `json:"credit"` // that paid a part at once
	Due      int64          `json:"due"`
	Payment  string         `json:"payment"`
	Note     string         `json:"note"`
}

type taxLine struct {
	Country     string `json:"country"`
	BasisPoints int64  `json:"basisPoints"`
	Amount      int64  `json:"amount"`
	Note        string `json:"note"`
}

// layout is the version of how documents are shown.
const layout = 1

// write returns the bytes of a final invoice's document. They follow from the basis alone.
func (i Invoice) write(c computed) ([]byte, error) {
	f := i.basis.Frozen
	d := Document{
		Layout: layout, ID: i.ID, Kind: "invoice", Number: f.Number, IssuedAt: f.FinalizedAt.String(), Seller: f.Seller.Seller, Buyer: f.Buyer.Party,
		Currency: i.Currency, Lines: c.Lines, Net: c.Net, TaxRate: taxLine{c.Tax.Country, c.Tax.BasisPoints, c.Due, c.Tax.Note}, Total: c.Total,
		Credit: f.Credit, Due: c.Total - f.Credit, Payment: f.Seller.Payment, Note: f.Seller.Note,
	}
	if d.Lines == nil {
		d.Lines = []Line{}
	}
	if x := i.basis.Credit; x != nil {
		d.Kind, d.Corrects, d.Due, d.Payment = "credit_note", x.Number, 0, ""
	} else {
		d.DueAt = f.DueAt.String()
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
