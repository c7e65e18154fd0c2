package document

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

const invoice = `{"layout":1,"kind":"invoice","number":"2026-000001","issuedAt":"2026-11-30T09:00:00.000Z","dueAt":"2026-12-14T09:00:00.000Z",
		"seller":{"name":"Acme","country":"DE"},"buyer":{"name":"Jørgen Ænder"},"currency":"EUR","lines":[{"text":"Plan pro","amount":1900}],
		"net":1900,"tax":{"country":"DE","basisPoints":1900,"amount":361},"total":2261,"due":2261}`

// Layout 1 always produces the same bytes. A changed layout must get a new number.
func TestPDFStays(t *testing.T) {
	t.Parallel()
	text, err := PDF([]byte(invoice))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != "2ab2f789a59512488ea53e2faa07098a3ca6d2c209ea685335b94dd2334e297b" {
		t.Errorf("the PDF of a document has changed: %s", got)
	}
	if _, err := PDF([]byte("{")); err == nil {
		t.Error("half a document has a PDF")
	}
}

func BenchmarkPDF(b *testing.B) {
	for b.Loop() {
		if _, err := PDF([]byte(invoice)); err != nil {
			b.Fatal(err)
		}
	}
}
