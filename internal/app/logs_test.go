package app

import (
	"slices"
	"testing"
)

// A search finds lines by their text in any case, whatever a database takes for a pattern.
func TestLogSearch(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1)
	a := f.nodes[0]
	lines := []string{"GET /Products 200", "100% done", "100 percent", "a_b", "aXb", `C:\temp`, "Ärger mit Äpfeln", "it's \"quoted\""}
	for _, line := range lines {
		a.logs.add("site", "one", web, "stdout", line)
	}
	for search, want := range map[string][]string{
		"get /products": {lines[0]}, "100%": {lines[1]}, "100": {lines[1], lines[2]}, "a_b": {lines[3]}, `C:\T`: {lines[5]}, "Äpfel": {lines[6]}, "Ärger": {lines[6]}, "mit Ä": {lines[6]},
		`it's "q`: {lines[7]}, "%": {lines[1]}, `\`: {lines[5]}, "nothing": nil, "' OR 1=1 --": nil,
	} {
		list, err := a.Logs(t.Context(), "site", LogFilter{Search: search, Flush: true})
		f.ok(err)
		var got []string
		for _, l := range list {
			got = append(got, l.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", search, got, want)
		}
	}
}
