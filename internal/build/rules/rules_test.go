package rules

import (
	"strings"
	"testing"
)

// Placeholders are expanded only up to the limit of a response.
func TestExpandIsBounded(t *testing.T) {
	t.Parallel()
	escaped := 0
	count := func(v string) string { escaped++; return v }
	text := expand(strings.Repeat(":a", 500), []Field{{"a", strings.Repeat("x", 100)}}, count, 1000)
	if escaped != 11 || len(text) <= 1000 {
		t.Errorf("%d values were filled in, and %d bytes returned, with a limit of 1000", escaped, len(text))
	}
}

// A request's headers are parsed once, however many rules use them.
func TestVisitorReadsOnce(t *testing.T) {
	t.Parallel()
	v := &Visitor{Left: 10}
	q := &Request{Language: "de", Cookie: "b=1"}
	asked := map[string]bool{"a": true, "b": true}
	if !v.speaks(q, []string{"de"}) || !v.sends(q, []string{"b"}, asked) {
		t.Fatal("the headers are not understood")
	}
	q.Language, q.Cookie = "en", "a=1"
	if v.speaks(q, []string{"en"}) || v.sends(q, []string{"a"}, asked) {
		t.Error("a header was read twice")
	}
}
