package site

import (
	"cmp"
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
func (w *where) search(owner account.OwnerID, search string) error {
	if utf8.RuneCountInString(search) > MaxSearch {
		return &fault.Error{
			Kind: fault.Invalid, Message: "The search is too long", Details: "search has at most 100 characters",
			Received: text.Clip(search, 200), Code: "invalid_search",
		}
	}
	if search = clean(search); search == "" {
		return nil
	}
	// Both sides are folded, so nothing is left for LIKE to do, which costs several times as much.
	within := "strpos("
	if w.sqlite {
		within = "instr("
	}
	has := func(column, s string) string { return within + column + ", " + w.args.Add(s) + ") > 0" }
	name := norm.NFC.String(strings.ToLower(search))
	if a, err := idna.Punycode.ToASCII(name); err == nil {
		name = a
	}
	w.and("(" + has("search", cmp.Or(fold(search), search)) +
		" OR id IN (SELECT site_id FROM site_domains WHERE owner_id = " + w.args.Add(owner) + " AND " + has("name", name) + "))")
	return nil
}

// literal takes LIKE's own characters for what they are.
var literal = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
