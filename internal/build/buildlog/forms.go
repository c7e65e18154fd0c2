package buildlog

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	minSecret = 6       // bytes of a value that is hidden; shorter ones are words such as "true"
	minPart   = 8       // bytes of a line of a value with several lines
	maxForms  = 1 << 20 // bytes of all patterns, which take about 28 MiB as nodes
)

// compile returns the automaton for all forms of the secrets. If they exceed maxForms, the rarest forms are left out:
// plain values come first, then JSON, URL, base64 and hex.
func compile(secrets []string) *automaton {
	var patterns []pattern
	seen := map[string]bool{}
	room := maxForms
	for _, form := range []struct {
		of    func(string) []string
		wraps bool
	}{{plain, false}, {jsonEscaped, false}, {urlEscaped, false}, {inBase64, true}, {inHex, true}} {
		for _, s := range secrets {
			for _, value := range values(s) {
				for _, text := range form.of(value) {
					if len(text) < minSecret || len(text) > room || seen[text] {
						continue
					}
					seen[text] = true
					room -= len(text)
					patterns = append(patterns, pattern{text, form.wraps})
				}
			}
		}
	}
	return newAutomaton(patterns)
}

// values returns the texts of a secret to hide: the whole, and each line.
func values(s string) (all []string) {
	if !Hides(s) {
		return nil
	}
	all = append(all, s)
	if t := strings.TrimSpace(s); t != s {
		all = append(all, t)
	}
	if !strings.ContainsAny(s, "\r\n") {
		return all
	}
	for _, line := range strings.FieldsFunc(s, func(r rune) bool { return r == '\r' || r == '\n' }) {
		line = strings.TrimSpace(line)
		if len(line) >= minPart {
			all = append(all, line)
		}
	}
	return all
}

// plain returns the value as the terminal step shows it. Values with several lines are hidden line by line.
func plain(s string) []string {
	if strings.ContainsAny(s, "\r\n") {
		return nil
	}
	return []string{s, shown(s)}
}

// inBase64 returns the value in both alphabets of RFC 4648, at each of the three offsets it can have in longer data.
// The first and last characters that also encode neighboring bytes are left out, so padding makes no difference.
func inBase64(s string) (all []string) {
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for lead, skip := range []int{0, 2, 3} {
			data := make([]byte, lead+len(s))
			copy(data[lead:], s)
			all = append(all, enc.EncodeToString(data)[skip:len(data)*8/6])
		}
	}
	return all
}

func inHex(s string) []string {
	h := hex.EncodeToString([]byte(s))
	return []string{h, strings.ToUpper(h)}
}

// Characters, besides letters and digits, that URL encoders don't encode.
var urlSafe = []string{
	"-_.~",                 // RFC 3986 unreserved: Go, Ruby, curl, PHP rawurlencode
	"-_.!~*'()",            // encodeURIComponent
	"-_.!~*'();/?:@&=+$,#", // encodeURI
	"-_.~/",                // Python quote
	"-_.~$&+=:@",           // Go PathEscape
	"-_.*",                 // application/x-www-form-urlencoded (WHATWG URL), Java
	"-_.",                  // PHP urlencode
	"",                     // encodes everything
}

func urlEscaped(s string) (all []string) {
	for _, safe := range urlSafe {
		for _, space := range []string{"%20", "+"} {
			for _, digits := range []string{"0123456789ABCDEF", "0123456789abcdef"} {
				var b strings.Builder
				for i := range len(s) {
					switch c := s[i]; {
					case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(safe, c) >= 0:
						b.WriteByte(c)
					case c == ' ':
						b.WriteString(space)
					default:
						b.WriteByte('%')
						b.WriteByte(digits[c>>4])
						b.WriteByte(digits[c&15])
					}
				}
				all = append(all, b.String())
			}
		}
	}
	return all
}

// jsonEscaped returns the value inside a JSON string (RFC 8259 §7) as written by JavaScript, Go (which also escapes <,
// > and &), Python (all but ASCII) and PHP (the slash, too).
func jsonEscaped(s string) []string {
	return []string{
		jsonString(s, "", false),
		jsonString(s, "<>&\u2028\u2029", false),
		jsonString(s, "", true),
		strings.ReplaceAll(jsonString(s, "", true), "/", `\/`),
		strings.ReplaceAll(jsonString(s, "", false), "/", `\/`),
	}
}

var jsonShort = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func jsonString(s, also string, ascii bool) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case jsonShort[r] != "":
			b.WriteString(jsonShort[r])
		case r < ' ', strings.ContainsRune(also, r), ascii && r >= utf8.RuneSelf && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case ascii && r >= 0x10000:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hides reports whether a secret is long enough to be hidden. Shorter ones occur by chance in many words.
func Hides(secret string) bool { return len(strings.TrimSpace(secret)) >= minSecret }
