package text

import (
	"strings"
	"testing"
)

// Printable escapes control sequences and changes of text direction.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain ünï":                 "plain ünï",
		"\x1b[2Jgone":               `\u001b[2Jgone`,
		"\x1b[31mred":               `\u001b[31mred`,
		"a\r\nb\tc":                 `a\u000d\u000ab c`,
		"\u202egpj.exe":             `\u202egpj.exe`,
		"\u009b31m\u2066\x00\u061c": `\u009b31m\u2066\u0000\u061c`,
		"\x9b31m":                   "\uFFFD31m",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// Screen passes lines, tabs and colors to a terminal, and escapes all other control characters.
func TestScreen(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                       "",
		"a\tb\nc":                                "a\tb\nc",
		"\x1b[1;31mred\x1b[0m\n":                 "\x1b[1;31mred\x1b[0m\n",
		"\x1b[31mred\r\x1b[K\x1b[2J":             "\x1b[31mred" + `\u000d\u001b[K\u001b[2J`,
		"\x1b]52;c;eA==\x07":                     `\u001b]52;c;eA==\u0007`,
		"\x1b\x1b[31m":                           `\u001b` + "\x1b[31m",
		"ü\u009b2J\x9b2J":                        `ü\u009b2J` + "\uFFFD2J",
		"\x1b[" + strings.Repeat("1;", 40) + "m": `\u001b[` + strings.Repeat("1;", 40) + "m",
	} {
		if got := Screen(in); got != want {
			t.Errorf("Screen(%q) = %q, want %q", in, got, want)
		}
	}
}
