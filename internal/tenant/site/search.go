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

// MaxSearch caps a search's length in characters.
const MaxSearch = 100

// fold normalizes text for searches: it removes case, the accents of European scripts, and compatibility variants such
// as wide letters. The result is stored with the row, because SQLite only folds ASCII case and PostgreSQL depends on
// its locale.
func fold(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36f { // combining diacritical marks
			return -1
		}
		return r
	}, norm.NFKD.String(clean(s)))
	// Via upper case, so that ς becomes σ and ı becomes i.
	return clean(strings.ReplaceAll(strings.ToLower(strings.ToUpper(s)), "ß", "ss"))
}

// clean turns user input into one line: valid UTF-8, single spaces, trimmed.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	return strings.Join(strings.Fields(s), " ")
}

// searchable returns the text in which searches look for a site, except for its domains. Searches can't contain the
// line breaks that separate the parts, so no match spans two of them.
func (s Site) searchable() string {
	text := fold(s.Name) + "\n" + s.Slug + "\n" + fold(s.Repository)
	for _, t := range s.Tags {
		text += "\n" + fold(t)
	}
	return text
}

// search adds the condition that the search is part of the name, subdomain, repository, a tag or a domain. A blank
// search matches everything. Domains are stored as A-labels (RFC 5890), so non-ASCII searches only match whole labels.
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

// domains returns a subquery for the sites with a domain that contains the search.
func (w *where) domains(owner account.OwnerID, search string) string {
	name := norm.NFC.String(strings.ToLower(search))
	if a, err := idna.Punycode.ToASCII(name); err == nil {
		name = a
	}
	return "SELECT site_id FROM site_domains WHERE owner_id = " + w.args.Add(owner) + " AND " + w.has("name", name)
}

// has returns the condition that a column contains text. Both are folded, so the much slower LIKE isn't needed.
func (w *where) has(column, text string) string {
	within := "strpos("
	if w.sqlite {
		within = "instr("
	}
	return within + column + ", " + w.args.Add(text) + ") > 0"
}

// searching validates a filter's search and determines whether any domain contains it. Usually none does, and a
// condition for each site would cost more than this query.
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

// literal escapes LIKE's wildcards.
var literal = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
