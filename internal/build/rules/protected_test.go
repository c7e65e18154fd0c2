package rules

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
)

// A path that a file protects with Basic-Auth is protected, or the release fails. Each of these cases once left /secret
// open.
func TestProtectionIsNeverDropped(t *testing.T) {
	t.Parallel()
	const rule = "/secret/*\n  Basic-Auth: anna:pass\n"
	wide := binary.LittleEndian.AppendUint16(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(rule)) {
		wide = binary.LittleEndian.AppendUint16(wide, u)
	}
	var many, fields strings.Builder
	for i := range maxHeaders {
		fmt.Fprintf(&many, "/%d\n  X-A: b\n", i)
	}
	fields.WriteString("/a\n")
	for i := range maxFields {
		fmt.Fprintf(&fields, "  X-%d: b\n", i)
	}
	pairs := strings.Repeat(" bob:"+strings.Repeat("p", 100), 40)
	const table = "[[headers]]\nfor = \"/secret/*\"\n[headers.values]\nBasic-Auth = \"anna:pass\"\n"
	for name, tt := range map[string]struct {
		file, text string
		fails      bool
	}{
		"a rule":                  {"_headers", rule, false},
		"a Latin-1 byte":          {"_headers", "# gesch\xfctzt\n" + rule, false},
		"a Latin-1 password":      {"_headers", strings.Replace(rule, "pass", "p\xe4ss", 1), false},
		"UTF-16":                  {"_headers", string(wide), false},
		"many pairs":              {"_headers", strings.TrimSpace(rule) + pairs + "\n", false},
		"a pair without password": {"_headers", "/secret/*\n  Basic-Auth: anna\n", false},
		"a control character":     {"_headers", "/secret/*\n  Basic-Auth: anna:pa\x01ss\n", false},
		"a long line before":      {"_headers", "/x\n  X-A: " + strings.Repeat("x", 2*maxLine) + "\n" + rule, false},
		"a long path before":      {"_headers", "/" + strings.Repeat("x", 2*maxLine) + "\n  X-A: b\n" + rule, false},
		"too many rules":          {"_headers", many.String() + rule, true},
		"too many fields":         {"_headers", fields.String() + rule, true},
		"two stars":               {"_headers", "/secret/*/x/*\n  Basic-Auth: anna:pass\n", true},
		"two placeholders":        {"_headers", "/secret/:a:b\n  Basic-Auth: anna:pass\n", true},
		"no slash":                {"_headers", "/x\n  X-A: b\nsecret/*\n  Basic-Auth: anna:pass\n", true},
		"no slash at the top":     {"_headers", "secret/*\n  Basic-Auth: anna:pass\n", true},
		"a long path":             {"_headers", "/secret/" + strings.Repeat("x", maxLine) + "*\n  Basic-Auth: anna:pass\n", true},
		"a host with a star":      {"_headers", "https://*.example.com/secret/*\n  Basic-Auth: anna:pass\n", true},
		"a query":                 {"_headers", "/secret?a=b\n  Basic-Auth: anna:pass\n", true},
		"no colon":                {"_headers", "/secret/*\n  Basic-Auth anna:pass\n", true},
		"another spelling":        {"_headers", "/secret/*\n  BasicAuth: anna:pass\n", true},
		"a conflict":              {"_headers", "<<<<<<< HEAD\n" + rule + "=======\n>>>>>>> topic\n", true},
		"too large":               {"_headers", rule + strings.Repeat("#", MaxFile), true},
		"a table":                 {"netlify.toml", table, false},
		"a large table":           {"netlify.toml", strings.Repeat("# comment\n", 10_000) + table, false},
		"a table too large":       {"netlify.toml", strings.Repeat("# comment\n", MaxFile/10) + table, true},
		"a table in UTF-16":       {"netlify.toml", "\xff\xfe[\x00[\x00h\x00", true},
		"a broken table":          {"netlify.toml", "[build\n" + table, true},
		"a table with a conflict": {"netlify.toml", "<<<<<<< HEAD\n" + table + "=======\n>>>>>>> topic\n", true},
		"a table with two stars":  {"netlify.toml", strings.Replace(table, "secret/*", "secret/*/*", 1), true},
		"a table without for":     {"netlify.toml", strings.Replace(table, "for =", "path =", 1), true},
		"another table":           {"netlify.toml", strings.Replace(table, "[headers.values]\n", "", 1), true},
		"a list in the table":     {"netlify.toml", strings.Replace(table, `"anna:pass"`, `[]`, 1), false},
		"ours":                    {"slipway.toml", strings.Replace(table, "secret/*", "secret/*/*", 1), true},
		"JSON": {
			"vercel.json", "{ // why\n" + `"headers": [{"source": "/secret/(.*)", "headers": [{"key": "Basic-Auth", "value": "anna:pass"}]}]}`, false,
		},
		"JSON with an expression": {
			"vercel.json", `{"headers": [{"source": "/secret/(a|b)", "headers": [{"key": "Basic-Auth", "value": "anna:pass"}]}]}`, true,
		},
		"broken JSON": {"vercel.json", `{"headers": [`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Sources
			s.Take(tt.file, []byte(tt.text))
			text, problems := s.Compile()
			fails := len(problems) > 0 && problems[0].Fatal
			if fails != tt.fails {
				t.Fatalf("fails: %v, %v", fails, problems)
			}
			if fails {
				return
			}
			set, err := Decode(text)
			if err != nil || set.HeadOf("", "secret/x", "").Auth == nil {
				t.Errorf("/secret/x is open: %v, %v", problems, err)
			}
		})
	}
}

// A file with many problems doesn't hide a fatal problem of another file.
func TestProblemsHideNothingFatal(t *testing.T) {
	t.Parallel()
	var s Sources
	s.Take("_redirects", []byte(strings.Repeat("nonsense\n", 2*maxProblems)))
	s.Take("_headers", []byte("/secret/*/*\n  Basic-Auth: anna:pass\n"))
	if _, problems := s.Compile(); !problems[0].Fatal {
		t.Errorf("the first of %d problems is %s", len(problems), problems[0])
	}
}

// If the published folder has no _headers, the repository's _headers applies where a path would otherwise be open.
func TestSpareHeaders(t *testing.T) {
	t.Parallel()
	const closed, open = "/secret/*\n  Basic-Auth: anna:pass\n", "/*\n  X-A: b\n"
	for name, tt := range map[string]struct {
		spare, published string
		fails, protected bool
	}{
		"not published":            {closed, "", false, true},
		"published":                {closed, closed, false, true},
		"with another password":    {closed, strings.Replace(closed, "pass", "word", 1), false, true},
		"published without":        {closed, open, true, false},
		"nothing is closed":        {open, "", false, false},
		"not understood":           {"/secret/*/*\n  Basic-Auth: anna:pass\n", "", true, false},
		"the published one closes": {open, closed, false, true},
	} {
		var s Sources
		s.Spare([]byte(tt.spare))
		if tt.published != "" {
			s.Take("_headers", []byte(tt.published))
		}
		text, problems := s.Compile()
		if fails := len(problems) > 0 && problems[0].Fatal; fails != tt.fails {
			t.Errorf("%s: fails: %v, %v", name, fails, problems)
			continue
		}
		set, err := Decode(text)
		if err != nil || !tt.fails && (set != nil && set.HeadOf("", "secret/x", "").Auth != nil) != tt.protected {
			t.Errorf("%s: %v, %v", name, problems, err)
		}
	}
}
