package dump

import (
	"strings"

	"slipway/internal/platform/lazyregexp"
)

var (
	notOurs = lazyregexp.New(
		`(?is)^(/\*!\d* *)?(USE\s|CREATE\s+(/\*!?\d*[^*]*\*/\s*)*DATABASE|DROP\s+(/\*!?\d*[^*]*\*/\s*)*DATABASE|ALTER\s+DATABASE|` +
			`LOCK\s+TABLES|UNLOCK\s+TABLES|FLUSH\s|SET\s+(@@)?GLOBAL|SET\s+@@SESSION\.SQL_LOG_BIN|CHANGE\s+MASTER)`,
	)
	anyDefiner = lazyregexp.New(
		"(?i)DEFINER\\s*=\\s*(`[^`]*`|'[^']*'|\"[^\"]*\"|[A-Za-z0-9_]+)\\s*@\\s*(`[^`]*`|'[^']*'|\"[^\"]*\"|[A-Za-z0-9_.%-]+)",
	)
	ofMySQL   = lazyregexp.New(`(?i)\butf8mb4_(?:[a-z]{2,4}_(?:[a-z]+_)?)?0900_(ai_ci|as_ci|as_cs_ks|as_cs|bin)\b`)
	anyTable  = lazyregexp.New(`(?i)^(/\*!\d* *)?(CREATE|ALTER|SET)\b`)
	anyCreate = lazyregexp.New(`(?i)^(/\*!\d* *)?CREATE\b`)
)

// Portable leaves out of a stranger's SQL what concerns its own server: other databases, locks,
// settings, and the users that things belonged to. Collations of MySQL 8 become ones that
// MariaDB has.
func Portable(q string) string {
	head := q[:min(len(q), 512)]
	if notOurs.MatchString(head) {
		return ""
	}
	if anyCreate.MatchString(head) {
		q = anyDefiner.ReplaceAllString(head, "") + q[len(head):]
	}
	if anyTable.MatchString(head) {
		q = ofMySQL.ReplaceAllStringFunc(q, collation)
	}
	return q
}

// collation returns the collation in place of one that only MySQL 8 has, by its comparison:
// WordPress's own choice on MariaDB, or by code point where case counts.
func collation(name string) string {
	if lower := strings.ToLower(name); strings.HasSuffix(lower, "_ci") {
		return "utf8mb4_unicode_520_ci"
	}
	return "utf8mb4_bin"
}
