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

// maxSlug leaves room in a DNS label (63 octets, RFC 1035 §2.3.4) for the 12 characters
// and "--" of a deployment's own address: 12 + 2 + 48 = 62.
const maxSlug = 48

// tombstone is how long a released name stays with the one who had it, so that nobody
// inherits another's visitors.
const tombstone = 90 * 24 * time.Hour

// reserved names never become a site's: they belong to the installation, or other
// software trusts whoever answers under them (RFC 2142, WPAD, MTA-STS, autodiscover).
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

// transliterated holds the letters that no Unicode decomposition turns into ASCII.
var transliterated = map[rune]string{
	'ß': "ss", 'æ': "ae", 'ø': "o", 'å': "a", 'œ': "oe", 'ð': "d", 'þ': "th", 'ł': "l", 'đ': "d", 'ı': "i", 'ħ': "h", 'ŋ': "n",
	'ä': "ae", 'ö': "oe", 'ü': "ue", '&': " and ", '@': " at ", '+': " plus ",
	'а': "a", 'б': "b", 'в': "v", 'г': "g", 'д': "d", 'е': "e", 'ё': "e", 'ж': "zh", 'з': "z", 'и': "i", 'й': "i", 'к': "k", 'л': "l",
	'м': "m", 'н': "n", 'о': "o", 'п': "p", 'р': "r", 'с': "s", 'т': "t", 'у': "u", 'ф': "f", 'х': "kh", 'ц': "ts", 'ч': "ch", 'ш': "sh",
	'щ': "shch", 'ъ': "", 'ы': "y", 'ь': "", 'э': "e", 'ю': "iu", 'я': "ia", 'і': "i", 'ї': "i", 'є': "ie", 'ґ': "g",
	'α': "a", 'β': "v", 'γ': "g", 'δ': "d", 'ε': "e", 'ζ': "z", 'η': "i", 'θ': "th", 'ι': "i", 'κ': "k", 'λ': "l", 'μ': "m", 'ν': "n",
	'ξ': "x", 'ο': "o", 'π': "p", 'ρ': "r", 'σ': "s", 'ς': "s", 'τ': "t", 'υ': "y", 'φ': "f", 'χ': "ch", 'ψ': "ps", 'ω': "o",
}

// Slug returns the URL-safe form of a name: lower-case ASCII letters, digits and single
// hyphens, at most 48, not reserved by punycode's "--" (RFC 5891 §4.2.3.1). A name
// without a letter or digit of ours gives "site".
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

// latin writes a character beyond ASCII in ASCII: by its decomposition where that is
// enough (é, ﬁ, ②), else as it is spoken, a syllable or word sign as a word of its own.
func latin(r rune) string {
	var b strings.Builder
	for _, d := range norm.NFKD.String(string(r)) {
		switch t, ok := transliterated[d]; {
		case ok:
			b.WriteString(t)
		case d < 0x80:
			b.WriteString(strings.ToLower(string(d)))
		case unicode.IsMark(d) && d != r: // an accent of the letter before
		case unicode.IsMark(r), unicode.IsLetter(r), unicode.IsNumber(r): // a mark is a vowel of its own in Indic and Thai, else nothing
			return spoken(r)
		default:
			return " "
		}
	}
	return b.String()
}

// spoken writes a character as it is spoken. The signs for sounds that Latin has no letter
// for (k`art`uli) are left out: they would tear a word.
func spoken(r rune) string {
	return strings.Map(func(c rune) rune {
		if c == '`' || c == '\'' || c == '"' || c == '@' {
			return -1
		}
		return unicode.ToLower(c)
	}, unidecode.Unidecode(string(r)))
}

// claimSlug takes the name's slug for the site, or, where it is taken or reserved, the
// slug with a hyphen and four random characters.
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
