package ansi

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"slipway/internal/web/dashboard/shell"
)

func TestANSI(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ in, want string }{
		"plain":             {"hello", "hello"},
		"color":             {"\x1b[31mred\x1b[0m plain", `<span class="f1">red</span> plain`},
		"bright and bold":   {"\x1b[1;92mok\x1b[m.", `<span class="f10 bo">ok</span>.`},
		"back":              {"\x1b[30;43mwarn\x1b[49mx\x1b[39my", `<span class="f0 b3">warn</span><span class="f0">x</span>y`},
		"inverse":           {"\x1b[7ma\x1b[31mb\x1b[27mc", `<span class="inv">a</span><span class="b1">b</span><span class="f1">c</span>`},
		"styles end":        {"\x1b[1;2;3;4;9ma\x1b[22;23;24;29mb", `<span class="bo fa it un st">a</span>b`},
		"256 of the base":   {"\x1b[38;5;9ma", `<span class="f9">a</span>`},
		"256 of the cube":   {"\x1b[38;5;196ma", `<span class="f9">a</span>`},
		"256 grey":          {"\x1b[48;5;244ma", `<span class="b8">a</span>`},
		"true color":        {"\x1b[38;2;0;205;0ma", `<span class="f2">a</span>`},
		"colons":            {"\x1b[38:2::255:0:0ma\x1b[48:5:4mb", `<span class="f9">a</span><span class="f9 b4">b</span>`},
		"what follows":      {"\x1b[38;5;1;1ma", `<span class="f1 bo">a</span>`},
		"cut color":         {"\x1b[38;5ma\x1b[38mb\x1b[38;2;1mc", `abc`},
		"unknown":           {"\x1b[999;73ma", `a`},
		"other sequences":   {"\x1b[2Ka\x1b[10;20Hb\x1b]0;title\x07c", "abc"},
		"cut sequence":      {"a\x1b[3", "a"},
		"broken sequence":   {"a\x1b[3\nb", "ab"},
		"markup":            {"\x1b[31m<b>&\"'\x1b[0m<i>", `<span class="f1">&lt;b&gt;&amp;&#34;&#39;</span>&lt;i&gt;`},
		"markup in numbers": {"\x1b[31\"><script>m", "cript&gt;m"},
		"not UTF-8":         {"a\xffb", "a\ufffdb"},
		"controls":          {"a\x00\x07\x7f\u009b1mb\tc", "a<span class=\"bo\">b\tc</span>"},
		"no text, no span":  {"\x1b[31m\x1b[0m", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			Write(&b, tt.in)
			if b.String() != tt.want {
				t.Errorf("Write(%q)\n got %s\nwant %s", tt.in, b.String(), tt.want)
			}
		})
	}
}

var (
	spans = regexp.MustCompile(`<span class="[a-z0-9 ]+">([^<]*)</span>`)
	bare  = regexp.MustCompile(`[<>"']`)
)

// For any build output, the result is escaped text and our own spans, each closed before the next opens. Only control
// sequences are dropped; text without them is unchanged.
func FuzzANSI(f *testing.F) {
	for _, s := range []string{
		"", "plain", "\x1b[31mred\x1b[0m", "\x1b[38;2;1;2;3mx", "\x1b[38:2::1:2:3mx", "<b>\x1b[1m\"'&",
		"\x1b[\x1b[\x1b[m", "\xff\x1b[3", "\x1b[;;;m", "\x1b[38;5;\x1b[31mx",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		var b strings.Builder
		Write(&b, in)
		out := b.String()
		text := spans.ReplaceAllString(out, "$1")
		if bare.MatchString(text) {
			t.Fatalf("%q became %q", in, out)
		}
		if plain := html.UnescapeString(text); shell.Clean(in) == in && plain != in {
			t.Fatalf("%q lost something: %q", in, plain)
		} else if shell.Clean(plain) != plain {
			t.Fatalf("%q holds what can't be shown: %q", in, plain)
		}
	})
}
