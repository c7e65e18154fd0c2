package dotenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want []Pair
		bad  string
	}{
		"plain":         {in: "A=1\nB = two words \n", want: []Pair{{"A", "1"}, {"B", "two words"}}},
		"comments":      {in: "# a\n\nA=1 # why\nB=a#b\nC= # none", want: []Pair{{"A", "1"}, {"B", "a#b"}, {"C", ""}}},
		"export":        {in: "export A=1\nexported=2", want: []Pair{{"A", "1"}, {"exported", "2"}}},
		"single quotes": {in: `A='a\n$B "c"' # x`, want: []Pair{{"A", `a\n$B "c"`}}},
		"double quotes": {in: `A="a\n\t\"b\" \\ \$C \q"`, want: []Pair{{"A", "a\n\t\"b\" \\ $C \\q"}}},
		"several lines": {
			in:   "KEY=\"-----BEGIN\nabc\n-----END\"\nB='x\ny'",
			want: []Pair{{"KEY", "-----BEGIN\nabc\n-----END"}, {"B", "x\ny"}},
		},
		"a dollar sign":     {in: "A=1\nB=pa$Aword\nC=\"${A}\"", want: []Pair{{"A", "1"}, {"B", "pa$Aword"}, {"C", "${A}"}}},
		"an equals sign":    {in: "URL=a=b==", want: []Pair{{"URL", "a=b=="}}},
		"the last counts":   {in: "A=1\nB=2\nA=3", want: []Pair{{"A", "3"}, {"B", "2"}}},
		"Windows":           {in: "\ufeffA=1\r\nB=2\r\n", want: []Pair{{"A", "1"}, {"B", "2"}}},
		"no equals sign":    {in: "A=1\nhello", bad: "Line 2 has no ="},
		"bad name":          {in: "A-B=1", bad: "Line 1 has an invalid name"},
		"open quote":        {in: "A=1\n\nB=\"x\ny", bad: "Line 3 has an unclosed quote"},
		"after the quote":   {in: `A="x" y`, bad: "Line 1 has text after the closing quote"},
		"nothing":           {in: "# nothing\n", bad: "No variables found"},
		"lines are counted": {in: "A='x\ny'\noops", bad: "Line 3 has no ="},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(tt.in)
			if tt.bad != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.bad) {
					t.Errorf("Parse(%q) = %v, %v, want %q", tt.in, got, err, tt.bad)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("Parse(%q) = %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

// hard are values that parsers of .env files often get wrong.
var hard = []string{
	"", " lead", "trail ", "two words", "#", "a #b", "a#b", "'", `"`, `it's "$HOME"`, "$HOME", "${HOME}", "$(id)", "`id`", `\`, `\\`, `\n`, `\$`, `a\`,
	"x\ny", "x  \n  y", "\n", "x\n", "\n\nx", "x\n#y", "x\nA=2", "x\n$HOME", "x\n'$HOME'", "x\n`id`'", "x\n\"\\'$(id)", "x'\n\\\n$y", "é 漢\n'$'", "!x", "!'x", "~", "*", "%",
	"-----BEGIN KEY-----\n$a'b\n-----END KEY-----\n",
}

// A shell that sources the file gets the same values and expands nothing in them.
func TestShellsReadTheSame(t *testing.T) {
	t.Parallel()
	var vars []Var
	script := "set -eu\n. \"$1\"\n"
	for i, value := range hard {
		key := fmt.Sprintf("V%d", i)
		vars = append(vars, Var{Key: key, Value: value})
		script += `printf '%s\0' "$` + key + "\"\n"
	}
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte(Format(vars)), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := exec.Command("sh", "-c", script, "sh", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, got)
	}
	for i, value := range strings.Split(strings.TrimSuffix(string(got), "\x00"), "\x00") {
		if i >= len(hard) || value != hard[i] {
			t.Errorf("a shell reads %q, want %q", value, hard[min(i, len(hard)-1)])
		}
	}
	pairs, err := Parse(Format(vars))
	if err != nil || len(pairs) != len(hard) {
		t.Fatal(len(pairs), err)
	}
	for i, p := range pairs {
		if p.Value != hard[i] {
			t.Errorf("%q is read as %q", hard[i], p.Value)
		}
	}
}

// Parse reads a value of 300,000 lines, each with an escaped quote, in one pass. Reading it once per line took minutes.
func TestParseManyQuotes(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("\"\n", 300_000)
	text := `A="` + strings.ReplaceAll(value, `"`, `\"`) + "\"\nB=1"
	if got, err := Parse(text); err != nil || len(got) != 2 || got[0].Value != value || got[1] != (Pair{"B", "1"}) {
		t.Errorf("%d variables, %v", len(got), err)
	}
	if _, err := Parse(text[:len(text)-5] + "\nB=1\nC D"); err == nil || !strings.Contains(err.Error(), "Line 1 ") {
		t.Errorf("%v, want the line where the unclosed value begins", err)
	}
	if _, err := Parse(text + "\nC D"); err == nil || !strings.Contains(err.Error(), "Line 300003 ") {
		t.Errorf("%v, want the line after a value of many lines", err)
	}
}

// Parse reads what Format wrote, and doesn't panic on any text.
func FuzzEnvFile(f *testing.F) {
	for _, s := range []string{"A=1", "a b", "x\ny'z", `\"$`, "#", " lead", "'", "é", "\r", "a\r\n'$b", "a'\r\nb"} {
		f.Add(s)
	}
	for _, s := range hard {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if pairs, err := Parse(s); err == nil && len(pairs) == 0 {
			t.Fatal("Parse returned neither a variable nor an error")
		}
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
			return // not a valid value
		}
		text := Format([]Var{{Key: "A", Value: s}, {Key: "SECRET", Secret: true}, {Key: "B", Value: "end"}})
		got, err := Parse(text)
		if err != nil || len(got) != 2 || got[0].Value != s || got[1].Value != "end" {
			t.Fatalf("%q written as %q is read as %q, %v", s, text, got, err)
		}
	})
}

func TestSecret(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"API_KEY", "STRIPE_SECRET_KEY", "GITHUB_TOKEN", "DB_PASSWORD", "PGPASSWORD", "SENTRY_DSN", "SMTP_PASS", "AWS_ACCESS_KEY_ID",
		"DATABASE_URL", "REDIS_URL", "MONGODB_URI", "api_token", "JWT_SECRET", "AUTH_SALT", "APIKEY", "GOOGLE_CREDENTIALS",
	} {
		if !Secret(key, "x") {
			t.Errorf("%s is not secret", key)
		}
	}
	for _, key := range []string{
		"PORT", "NODE_ENV", "KEYBOARD", "MONKEY", "TOKENIZER", "SITE_URL", "COMPASS", "PASSAGE", "NEXT_PUBLIC_MAP_KEY", "VITE_API_KEY", "VAPID_PUBLIC_KEY",
	} {
		if Secret(key, "x") {
			t.Errorf("%s is secret", key)
		}
	}
	if !Secret("BROKER", "amqp://ada:pw@mq.example.com/") || Secret("SITE", "https://example.com/a:b@c") {
		t.Error("an address is secret where it holds a password, and only there")
	}
}
