package site

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/mozillazg/go-unidecode"
	"golang.org/x/text/unicode/norm"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
)

// maxSlug leaves room in a DNS label (63 octets, RFC 1035 §2.3.4) for the 12 characters and "--" of a deployment's URL:
// 12 + 2 + 48 = 62.
const maxSlug = 48

// tombstone is how long a released name stays reserved for its previous owner, so that nobody takes over its visitors.
const tombstone = 90 * 24 * time.Hour

// reserved lists names that can't be a site's: they belong to the installation, or other software trusts hosts with
// these names (RFC 2142, WPAD, MTA-STS, autodiscover).
var reserved = words(`
	www api app admin dashboard account accounts auth oauth login logout signin signup register
	mail email smtp imap pop pop3 mx webmail autoconfig autodiscover mta-sts wpad isatap
	ns ns1 ns2 ns3 ns4 dns ftp sftp ssh vpn proxy git cdn edge assets static media img images
	status health healthz readyz metrics internal system root localhost local
	docs help support billing pay payment payments security abuse postmaster hostmaster webmaster
	noc info marketing sales usenet news uucp hooks hook webhook webhooks deploy slipway
	blog-admin test-admin sso idp id ca acme caldav carddav`)

func words(s string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(s) {
		m[w] = true
	}
	return m
}

// transliterated holds letters whose Unicode decomposition isn't ASCII.
var transliterated = map[rune]string{
	'ß': "ss", 'æ': "ae", 'ø': "o", 'å': "a", 'œ': "oe", 'ð': "d", 'þ': "th", 'ł': "l", 'đ': "d", 'ı': "i", 'ħ': "h", 'ŋ': "n",
	'ä': "ae", 'ö': "oe", 'ü': "ue", '&': " and ", '@': " at ", '+': " plus ",
	'а': "a", 'б': "b", 'в': "v", 'г': "g", 'д': "d", 'е': "e", 'ё': "e", 'ж': "zh", 'з': "z", 'и': "i", 'й': "i", 'к': "k", 'л': "l",
	'м': "m", 'н': "n", 'о': "o", 'п': "p", 'р': "r", 'с': "s", 'т': "t", 'у': "u", 'ф': "f", 'х': "kh", 'ц': "ts", 'ч': "ch", 'ш': "sh",
	'щ': "shch", 'ъ': "", 'ы': "y", 'ь': "", 'э': "e", 'ю': "iu", 'я': "ia", 'і': "i", 'ї': "i", 'є': "ie", 'ґ': "g",
	'α': "a", 'β': "v", 'γ': "g", 'δ': "d", 'ε': "e", 'ζ': "z", 'η': "i", 'θ': "th", 'ι': "i", 'κ': "k", 'λ': "l", 'μ': "m", 'ν': "n",
	'ξ': "x", 'ο': "o", 'π': "p", 'ρ': "r", 'σ': "s", 'ς': "s", 'τ': "t", 'υ': "y", 'φ': "f", 'χ': "ch", 'ψ': "ps", 'ω': "o",
}

// Slug converts a name to lower-case ASCII letters, digits and single hyphens, at most 48. It has no "--", which is
// reserved for punycode (RFC 5891 §4.2.3.1). A name without any usable character becomes "site".
func Slug(name string) string {
	var b strings.Builder
	dash := false
	add := func(s string) {
		for i := range len(s) {
			c := s[i]
			if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
				if dash && b.Len() > 0 {
					b.WriteByte('-')
				}
				dash = false
				b.WriteByte(c)
			} else {
				dash = true
			}
		}
	}
	for _, r := range norm.NFC.String(strings.ToLower(name)) {
		switch t, ok := transliterated[r]; {
		case ok:
			add(t)
		case r < 0x80:
			add(string(r))
		default:
			add(latin(r))
		}
	}
	s := b.String()
	if len(s) > maxSlug {
		s = strings.TrimRight(s[:maxSlug], "-")
	}
	if s == "" {
		return "site"
	}
	return s
}

// latin transliterates a non-ASCII character: by its decomposition if that is ASCII (é, ﬁ, ②), otherwise by its sound.
// A syllable or ideograph becomes a separate word.
func latin(r rune) string {
	var b strings.Builder
	for _, d := range norm.NFKD.String(string(r)) {
		switch t, ok := transliterated[d]; {
		case ok:
			b.WriteString(t)
		case d < 0x80:
			b.WriteString(strings.ToLower(string(d)))
		case unicode.IsMark(d) && d != r: // an accent of the previous letter
		case unicode.IsMark(r), unicode.IsLetter(r), unicode.IsNumber(r): // a mark is a vowel in Indic scripts and Thai, otherwise empty
			return spoken(r)
		default:
			return " "
		}
	}
	return b.String()
}

// spoken transliterates a character by its sound. It drops apostrophes such as in k`art`uli, which would split the
// word.
func spoken(r rune) string {
	return strings.Map(func(c rune) rune {
		if c == '`' || c == '\'' || c == '"' || c == '@' {
			return -1
		}
		return unicode.ToLower(c)
	}, unidecode.Unidecode(string(r)))
}

// claimSlug reserves the name's slug for the site. If it is taken or reserved, it appends a hyphen and four random
// characters.
func claimSlug(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID, name string) (string, error) {
	base := Slug(name)
	for try := range 20 {
		slug := base
		if try > 0 || reserved[base] {
			slug = strings.TrimRight(base[:min(len(base), maxSlug-5)], "-") + "-" + db.Random(3)[:4]
		}
		now := db.Now()
		n, err := tx.Exec(ctx, `
			INSERT INTO slugs (slug, owner_id, site_id, released_at) VALUES ($1, $2, $3, 0)
			ON CONFLICT (slug) DO UPDATE SET owner_id = excluded.owner_id, site_id = excluded.site_id, released_at = 0
			WHERE slugs.site_id = '' AND (slugs.owner_id = excluded.owner_id OR slugs.released_at < $4)`,
			slug, owner, id, now.Add(-tombstone))
		if err != nil {
			return "", fmt.Errorf("claim slug: %w", err)
		}
		if n == 1 {
			return slug, nil
		}
	}
	return "", fmt.Errorf("claim slug: no free form of %q found", base)
}

// Subdomain returns the subdomain of the owner's site, or a NotFound fault.
func (s *Sites) Subdomain(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (string, error) {
	var subdomain string
	err := r.QueryRow(ctx, `SELECT subdomain FROM open_sites WHERE id = $1 AND owner_id = $2`, id, owner).Scan(&subdomain)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fault.Missing("site")
	}
	return subdomain, err
}
