package document

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/billing/party"
)

func parseTime(s string) (db.Time, error) {
	at, err := time.Parse(time.RFC3339, s)
	return db.At(at), err
}

// PDF renders a document. The output is reproducible: every date in it comes from the document, and the fonts are
// embedded in the program.
func PDF(document []byte) ([]byte, error) {
	d, issued, err := readDocument(document)
	if err != nil {
		return nil, fmt.Errorf("read invoice document: %w", err)
	}
	p := fpdf.New("P", "mm", "A4", "")
	p.SetCatalogSort(true)
	p.SetCreationDate(issued.Time().UTC())
	p.SetModificationDate(issued.Time().UTC())
	p.SetTitle(d.title()+" "+d.Number, true)
	p.SetAuthor(d.Seller.Name, true)
	p.AddUTF8FontFromBytes("Go", "", goregular.TTF)
	p.AddUTF8FontFromBytes("Go", "B", gobold.TTF)
	p.SetMargins(20, 20, 20)
	p.SetAutoPageBreak(true, 20)
	p.AddPage()
	text := func(style string, size, height float64, s string) {
		p.SetFont("Go", style, size)
		p.MultiCell(170, height, s, "", "L", false)
	}
	row := func(style, left, right string) {
		p.SetFont("Go", style, 9)
		lines := p.SplitText(left, 128)
		for n, line := range lines {
			p.CellFormat(130, 5.5, line, "", 0, "L", false, 0, "")
			if n < len(lines)-1 {
				right, p := "", p
				p.CellFormat(40, 5.5, right, "", 1, "R", false, 0, "")
			}
		}
		p.CellFormat(40, 5.5, right, "", 1, "R", false, 0, "")
	}
	rule := func() {
		p.Ln(1.5)
		p.Line(20, p.GetY(), 190, p.GetY())
		p.Ln(1.5)
	}
	text("", 9, 4.5, partyLines(d.Seller))
	p.Ln(8)
	text("", 10, 5, partyLines(d.Buyer))
	p.Ln(10)
	text("B", 16, 8, d.title()+" "+d.Number)
	text("", 9, 5, d.dates())
	p.Ln(5)
	for _, l := range d.Lines {
		row("", l.Text, d.Currency.Format(l.Amount))
	}
	rule()
	row("", "Net", d.Currency.Format(d.Net))
	if d.TaxRate.BasisPoints > 0 {
		row("", fmt.Sprintf("Tax %s %d.%02d %%", d.TaxRate.Country, d.TaxRate.BasisPoints/100, d.TaxRate.BasisPoints%100),
			d.Currency.Format(d.TaxRate.Amount))
	}
	row("B", "Total", d.Currency.Format(d.Total))
	if d.Credit > 0 {
		row("", "Paid from credit", d.Currency.Format(-d.Credit))
	} else if d.Credit < 0 {
		row("", "Carried over from earlier invoices", d.Currency.Format(-d.Credit))
	}
	if d.Carried > 0 {
		row("", "Carried over to the next invoice", d.Currency.Format(-d.Carried))
	}
	if d.Credit != 0 || d.Carried > 0 {
		row("B", "To pay", d.Currency.Format(d.Due))
	}
	p.Ln(6)
	for _, s := range []string{d.TaxRate.Note, d.Payment, d.Note} {
		if s != "" {
			text("", 9, 4.5, s)
			p.Ln(3)
		}
	}
	var out bytes.Buffer
	if err := p.Output(&out); err != nil {
		return nil, fmt.Errorf("write PDF: %w", err)
	}
	return out.Bytes(), nil
}

func (d Document) title() string {
	if d.Kind == "credit_note" {
		return "Credit note"
	}
	return "Invoice"
}

func (d Document) dates() string {
	s := "Date: " + d.IssuedAt[:10]
	if d.DueAt != "" && d.Due > 0 {
		s += "\nDue: " + d.DueAt[:10] + "\nReference: " + d.Number
	}
	if d.Corrects != "" {
		s += "\nCorrects invoice " + d.Corrects
	}
	return s
}

func partyLines(p party.Party) string {
	var lines []string
	for _, s := range []string{p.Name, p.Address, p.Country, p.VATID} {
		if s != "" {
			lines = append(lines, s)
		}
	}
	return strings.Join(lines, "\n")
}
