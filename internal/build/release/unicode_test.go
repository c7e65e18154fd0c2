package release

import (
	"net/url"
	"testing"

	"golang.org/x/text/unicode/norm"

	"slipway/internal/build/rules"
)

// A file is found, and protected by rules, with either Unicode form of its name, whichever form it is stored with.
func TestUnicodeForms(t *testing.T) {
	t.Parallel()
	const page, closed = "caf\u00e9/men\u00fc.html", "geb\u00fchr/x.txt"
	for _, stored := range []norm.Form{norm.NFC, norm.NFD} {
		for _, written := range []norm.Form{norm.NFC, norm.NFD} {
			files := map[string]string{
				"_headers":   written.String("/geb\u00fchr/*\n  Basic-Auth: a:b\n"),
				"_redirects": written.String("/\u00fcber /caf\u00e9/men\u00fc 200\n"),
			}
			tree, problems := ruledTree(t, []string{stored.String(page), stored.String(closed)}, files)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			for _, asked := range []norm.Form{norm.NFC, norm.NFD} {
				at := func(name string) Answer {
					return tree.Resolve(rules.Request{Path: (&url.URL{Path: "/" + asked.String(name)}).EscapedPath()})
				}
				for _, name := range []string{"caf\u00e9/men\u00fc", "\u00fcber"} {
					if a := at(name); shown(a) != "200 "+stored.String(page) {
						t.Errorf("stored %d, written %d, asked %d: %s is %s", stored, written, asked, name, shown(a))
					}
				}
				if a := at(closed); shown(a) != "200 "+stored.String(closed) || a.Auth == nil {
					t.Errorf("stored %d, written %d, asked %d: %s, protected by %v", stored, written, asked, shown(a), a.Auth)
				}
			}
		}
	}
}
