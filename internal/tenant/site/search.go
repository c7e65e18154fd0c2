package site

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
)

// MaxSearch is how many characters a search has at most.
const MaxSearch = 100

// fold is a text as searches see it: without letter case, the accents of European
// scripts, and other forms of the same letter, such as wide ones. It is done here, and
// kept beside the row, because SQLite knows the case of ASCII alone and PostgreSQL that
// of its locale.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36f { // combining diacritical marks
			return -1
		}
		return r
	}, norm.NFKD.String(clean(s)))
	// By way of capitals, so that ς is σ and ı is i.
	return clean(strings.ReplaceAll(strings.ToLower(strings.ToUpper(s)), "ß", "ss"))
}

// clean is a text of whoever sent it as one line: valid, single blanks, none at its ends.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

// searchable returns the text that a site is found by, besides its domains. No search holds the line
// break, so that none matches across two of them.
func (s Site) searchable() string {
	text := fold(s.Name) + "\n" + s.Slug + "\n" + fold(s.Repository)
	for _, t := range s.Tags {
		text += "\n" + fold(t)
	}
	return text
}

// search narrows to sites of which the search is a part of the name, subdomain, repository,
// a tag or a domain; a blank one doesn't. Domains are kept as A-labels (RFC 5890), so beyond ASCII whole labels match.
func (w *where) search(owner account.OwnerID, f Filter) {
	search := clean(f.Search)
	if search == "" {
		return
	}
	found := w.has("search", cmp.Or(fold(search), search))
	if f.domains {
		found = "(" + found + " OR id IN (" + w.domains(owner, search) + "))"
	}
	w.and(found)
}

// domains selects the sites of the owner's domains of which the search is a part.
func (w *where) domains(owner account.OwnerID, search string) string {
	name := norm.NFC.String(strings.ToLower(search))
	if a, err := idna.Punycode.ToASCII(name); err == nil {
		name = a
	}
	return "SELECT site_id FROM site_domains WHERE owner_id = " + w.args.Add(owner) + " AND " + w.has("name", name)
}

// has is a condition: a column has the text in it. Both are folded, so nothing is left for LIKE to do, which costs several
// times as much.
func (w *where) has(column, text string) string {
	within := "strpos("
	if w.sqlite {
		within = "instr("
	}
	return within + column + ", " + w.args.Add(text) + ") > 0"
}

// searching checks a filter's search and finds out whether domains have it in them. Mostly none has, and then to look for
// each site among the sites of such domains would cost more than to ask.
func (s *Sites) searching(ctx context.Context, owner account.OwnerID, f *Filter) error {
	if utf8.RuneCountInString(f.Search) > MaxSearch {
		return fault.New(fault.Invalid, "invalid_search", "The search is too long",
			"search has at most 100 characters").Got(text.Clip(f.Search, 200))
	}
	search := clean(f.Search)
	if search == "" {
		return nil
	}
	w := where{sqlite: s.c.DB.Single()}
	q := "SELECT EXISTS (" + w.domains(owner, search) + ")"
	if err := s.c.DB.QueryRow(ctx, q, w.args...).Scan(&f.domains); err != nil {
		return fmt.Errorf("search domains: %w", err)
	}
	return nil
}

// literal takes LIKE's own characters for what they are.
var literal = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
