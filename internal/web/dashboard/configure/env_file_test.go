package configure

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"slipway/internal/tenant/site"
)

func TestParseEnv(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want []envPair
		bad  string
	}{
		"plain":         {in: "A=1\nB = two words \n", want: []envPair{{"A", "1"}, {"B", "two words"}}},
		"comments":      {in: "# a\n\nA=1 # why\nB=a#b\nC= # none", want: []envPair{{"A", "1"}, {"B", "a#b"}, {"C", ""}}},
		"export":        {in: "export A=1\nexported=2", want: []envPair{{"A", "1"}, {"exported", "2"}}},
		"single quotes": {in: `A='a\n$B "c"' # x`, want: []envPair{{"A", `a\n$B "c"`}}},
		"double quotes": {in: `A="a\n\t\"b\" \\ \$C \q"`, want: []envPair{{"A", "a\n\t\"b\" \\ $C \\q"}}},
		"several lines": {
			in:   "KEY=\"-----BEGIN\nabc\n-----END\"\nB='x\ny'",
			want: []envPair{{"KEY", "-----BEGIN\nabc\n-----END"}, {"B", "x\ny"}},
		},
		"a dollar sign":     {in: "A=1\nB=pa$Aword\nC=\"${A}\"", want: []envPair{{"A", "1"}, {"B", "pa$Aword"}, {"C", "${A}"}}},
		"an equals sign":    {in: "URL=a=b==", want: []envPair{{"URL", "a=b=="}}},
		"the last counts":   {in: "A=1\nB=2\nA=3", want: []envPair{{"A", "3"}, {"B", "2"}}},
		"Windows":           {in: "\ufeffA=1\r\nB=2\r\n", want: []envPair{{"A", "1"}, {"B", "2"}}},
		"no equals sign":    {in: "A=1\nhello", bad: "Line 2 has no ="},
		"bad name":          {in: "A-B=1", bad: "Line 1 has an invalid name"},
		"open quote":        {in: "A=1\n\nB=\"x\ny", bad: "Line 3 has an unclosed quote"},
		"after the quote":   {in: `A="x" y`, bad: "Line 1 has text after the closing quote"},
		"nothing":           {in: "# nothing\n", bad: "No variables found"},
		"lines are counted": {in: "A='x\ny'\noops", bad: "Line 3 has no ="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseEnv(tt.in)
			if tt.bad != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.bad) {
					t.Errorf("parseEnv(%q) = %v, %v, want %q", tt.in, got, err, tt.bad)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("parseEnv(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

// What is exported is imported as the same, and no text makes the parser panic.
func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1", "a b", "x\ny'z", `\"$`, "#", " lead", "'", "é", "\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if pairs, err := parseEnv(s); err == nil && len(pairs) == 0 {
			t.Fatal("neither a variable nor an error")
		}
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return // no value of ours
		}
		text := formatEnv([]site.Var{{Key: "A", Value: s}, {Key: "SECRET", Secret: true}, {Key: "B", Value: "end"}})
		got, err := parseEnv(text)
		if err != nil || len(got) != 2 || got[0].value != s || got[1].value != "end" {
			t.Fatalf("%q written as %q is read as %q, %v", s, text, got, err)
		}
	})
}
