package buildlog

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t/+ \"ü\"&value"
	multi := "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh\nshort\nkiG9w0BAQEFAASCB\n-----END KEY-----\n"
	quoted, _ := json.Marshal(secret)
	for name, tt := range map[string]struct{ in, want string }{
		"plain":         {"is " + secret + ".", "is [secret]."},
		"twice":         {secret + secret, "[secret][secret]"},
		"in a command":  {"sh: deploy --token=" + secret + ": not found", "sh: deploy --token=[secret]: not found"},
		"colors within": {"is s3c\x1b[31mr3t/+ \x1b[0m\"ü\"&val\x1b]0;t\x07ue.", "is [secret]."},
		"JSON":          {string(quoted), `"[secret]"`},
		"form":          {"?q=" + url.QueryEscape(secret) + "&r=1", "?q=[secret]&r=1"},
		"path":          {url.PathEscape(secret), "[secret]"},
		// Mixed case isn't a known encoding.
		"lower hex escapes": {
			strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(secret), "%2F", "%2f"), "%2B", "%2b"),
			"s3cr3t%2f%2b+%22%C3%BC%22%26value",
		},
		"all lower":         {"s3cr3t%2f%2b%20%22%c3%bc%22%26value", "[secret]"},
		"hex":               {hex.EncodeToString([]byte(secret)), "[secret]"},
		"HEX":               {strings.ToUpper(hex.EncodeToString([]byte(secret))), "[secret]"},
		"line of a key":     {"MIIEvQIBADANBgkqh kiG9w0BAQEFAASCB", "[secret] [secret]"},
		"short line of it":  {"short", "short"},
		"key in JSON":       {`{"k":"` + strings.ReplaceAll(multi, "\n", `\n`) + `"}`, `{"k":"[secret]"}`},
		"too short a value": {"true 12345", "true 12345"},
		"half of it":        {"s3cr3t/+", "s3cr3t/+"},
		"a longer one":      {"abcdefghij abcdefg", "[secret] [secret]g"},
		"overlapping":       {"abcdefxyz123", "[secret]"},
		"key with newline":  {"token-with-newline", "[secret]"},
		"digits as colors":  {"\x1b[123456m!", "!"},
		"color and text":    {"\x1b[31mxyzzy!", "31mxyzzy!"[3:]},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, got := record(Config{
				Secrets: []string{
					secret, multi, "true", "12345", "abcdef", "abcdefghij", "defxyz123", "token-with-newline\n",
					"123456", "31mxyzzy", "      ", "",
				},
			})
			for i := range len(tt.in) {
				write(t, l, tt.in[i:i+1])
			}
			l.Close()
			if m := got.all()[0].Message; m != tt.want || len(got.all()) != 1 {
				t.Errorf("%q became %q, want %q", tt.in, m, tt.want)
			}
			if raw := got.all()[0].Raw; strings.Contains(raw, "31mxyzzy") || strings.Contains(raw, "123456") {
				t.Errorf("raw %q", raw)
			}
		})
	}
}

// A secret in base64 is hidden at every offset in longer data, with or without padding or line breaks.
func TestRedactBase64(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("A long token, such as a JWT or a key. \xfe\xff?>~", 5)
	for _, secret := range []string{"hunter", "hunter2", "hunter22", long} {
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding, base64.RawURLEncoding} {
			for _, before := range []string{"", "a", "ab", "abc"} {
				for _, after := range []string{"", "\n", "yz", "xyz"} {
					for _, width := range []int{10000, 76, 64, 60} {
						text := enc.EncodeToString([]byte(before + secret + after))
						l, got := record(Config{Secrets: []string{secret}})
						for rest := text; rest != ""; {
							n := min(width, len(rest))
							write(t, l, rest[:n]+"\n")
							rest = rest[n:]
						}
						l.Close()
						left := strings.Join(messages(got.all()), "")
						// Only characters at the ends may remain, because they also encode neighboring bytes.
						if rest := strings.ReplaceAll(left, redacted, ""); len(rest) > 12 || !strings.Contains(left, redacted) {
							t.Errorf("%q in lines of %d became %q", text, width, messages(got.all()))
						}
					}
				}
			}
		}
	}
}

// The memory for secrets is bounded, however large they are.
func TestHugeSecrets(t *testing.T) {
	t.Parallel()
	var secrets []string
	for i := range 40 {
		secrets = append(secrets, strings.Repeat(fmt.Sprintf("%d/%d-", i, i*i), 5000))
	}
	l, got := record(Config{Secrets: secrets})
	if n := len(l.hide.nodes); n > maxForms+1 {
		t.Errorf("%d nodes", n)
	}
	write(t, l, secrets[3], "\n")
	l.Close()
	if m := strings.Join(messages(got.all()), ""); strings.ReplaceAll(m, redacted, "") != "" {
		t.Errorf("got %.100q", m)
	}
}

// No form of a secret appears in any line, for any split of writes and any terminal sequences between them.
func FuzzRedact(f *testing.F) {
	f.Add("hunter22", "password: ", "!", 1, uint8(0))
	f.Add("a b/c+d&e\"f'", "x", "y", 3, uint8(1))
	f.Add("päss wörd 🚀", "\x1b[31m", "\r\n", 2, uint8(2))
	f.Add("aaaaaaa", "aaaa", "aaaa", 5, uint8(3))
	f.Add("line one is here\nline two is here", "x\n", "\n", 4, uint8(4))
	f.Add("123456", "\x1b[", "m", 9, uint8(0))
	f.Fuzz(noSecret)
}

// No form of a secret appears, with random secrets, surroundings and writes.
func TestNoSecretWhateverTheWrites(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 20))
	text := func(n int) string {
		parts := []string{
			"a", "b", "ab", "Z", "0", "9", "=", "/", "+", " ", "%", "\\", "\"", "'", "<", "ü", "日", "🚀", "\n", "\t",
			"\r\n", "\x1b[31m", "31m", "\xff", "-", "_", ".",
		}
		var b strings.Builder
		for range n {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	for range 150 {
		noSecret(t, text(4+r.IntN(40)), text(r.IntN(30)), text(r.IntN(30)), 1+r.IntN(20), uint8(r.IntN(5)))
	}
}

func noSecret(t *testing.T, secret, before, after string, chunk int, split uint8) {
	if len(secret) > 200 || len(before)+len(after) > 500 {
		return
	}
	forms := map[string]bool{}
	texts := []string{secret, before + secret + after, hex.EncodeToString([]byte(secret))}
	for _, v := range values(secret) {
		for _, of := range []func(string) []string{plain, jsonEscaped, urlEscaped, inBase64, inHex} {
			for _, form := range of(v) {
				if len(form) >= minSecret && !strings.ContainsAny(form, "\r\n") {
					forms[form] = true
					texts = append(texts, form)
				}
			}
		}
		texts = append(
			texts,
			base64.StdEncoding.EncodeToString([]byte(before+v+after)),
			base64.RawURLEncoding.EncodeToString([]byte(before+v)),
		)
	}
	l, got := record(Config{Secrets: []string{secret}, MaxLine: 64, MaxLines: 1 << 30, Rate: 1 << 30, Silence: time.Hour})
	noise := []string{"", "\x1b[31m", "\x1b[K", "\x07", "\x1b]0;t\x07"}[int(split)%5]
	for _, text := range texts {
		text = before + text + after
		for text != "" {
			n := min(max(chunk, 1), len(text))
			write(t, l, text[:n], noise)
			text = text[n:]
		}
		write(t, l, "\n")
	}
	l.Close()
	for _, line := range got.all() {
		for form := range forms {
			for _, piece := range append(strings.Split(line.Message, redacted), strings.Split(line.Raw, redacted)...) {
				if strings.Contains(piece, form) {
					t.Fatalf("%q stands in %q", form, line)
				}
			}
		}
	}
}
