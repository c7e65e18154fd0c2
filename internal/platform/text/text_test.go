package text

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":              "",
		" one\ntwo":     "one",
		"a\x00b\tc\x7f": "abc",
		"\xffx":         "?x",
		"äöüßé":         "äöüßé",
		"äöüßéx":        "äöüß…",
		"\u202e":        "\u202e",
	} {
		if got := Line(in, 5); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                     "",
		"abcd":                 "abcd",
		"abcde":                "abcd…",
		"abcä":                 "abc…",
		"a\xff":                "a\uFFFD",
		strings.Repeat("ä", 9): "ää…",
		"\xff\xff\xff\xff\xff": "\uFFFD…",
	} {
		if got := Clip(in, 4); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":          "",
		"äöüß":      "äöüß",
		"äöüßé":     "äöü…",
		"a\xff\x00": "a\uFFFD",
		"one\ntwo":  "one…",
	} {
		if got := Cut(in, 4); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("häß\xff", 3)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 1 || n > 1<<20 {
			return
		}
		for _, got := range []string{Clip(s, n), Line(s, n), Cut(s, n)} {
			if !utf8.ValidString(got) {
				t.Errorf("%q is no text", got)
			}
		}
		if got := Line(s, n); utf8.RuneCountInString(got) > n || strings.ContainsAny(got, "\n\r\x00") {
			t.Errorf("%q is no line of %d characters", got, n)
		}
	})
}

func TestSizeAndCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0:         "0 bytes",
		512:       "512 bytes",
		1536:      "1.5 KiB",
		64 << 20:  "64 MiB",
		2 << 30:   "2 GiB",
		2<<30 + 1: "2 GiB",
	} {
		if got := Size(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if Count(1, "site")+Count(0, "site")+Count(2, "site") != "1 site0 sites2 sites" {
		t.Error(Count(1, "site"), Count(0, "site"), Count(2, "site"))
	}
}
