package wordpress

import (
	"strings"
	"testing"
)

func TestWorse(t *testing.T) {
	t.Parallel()
	before := []page{{"/", 200, "Blog", 9000, true}, {"/old-bug/", 500, "", 0, false}}
	for name, tt := range map[string]struct {
		change func(p []page)
		want   string
	}{
		"same":          {func([]page) {}, ""},
		"a bit smaller": {func(p []page) { p[0].Size = 7000 }, ""},
		"mended":        {func(p []page) { p[1] = page{"/old-bug/", 200, "Fine", 900, true} }, ""},
		"gone":          {func(p []page) { p[0].Status = 404 }, "The page / answers with status 404 instead of 200"},
		"no answer":     {func(p []page) { p[0].Status = 0 }, "The page / does not answer"},
		"title":         {func(p []page) { p[0].Title = "Hacked" }, `The page / has the title "Hacked" instead of "Blog"`},
		"cut off":       {func(p []page) { p[0].Whole = false }, "The page / breaks off"},
		"empty":         {func(p []page) { p[0].Size = 2000 }, "The page / has lost most of its content: 2000 bytes instead of 9000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := append([]page{}, before...)
			tt.change(after)
			if got := worse(before, after); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestMinor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		from, to string
		want     bool
	}{{"6.4.1", "6.4.5", true}, {"6.4", "6.4.1", true}, {"6.4.5", "6.5", false}, {"6.4.5", "7.4.5", false}, {"10.1", "1.1", false}} {
		if got := minor(tt.from, tt.to); got != tt.want {
			t.Errorf("minor(%s, %s) = %v", tt.from, tt.to, got)
		}
	}
}

// Every form of an address is replaced, and the new one by nothing.
func TestAddressPairs(t *testing.T) {
	t.Parallel()
	text := `https://old.test:8443/a http://old.test:8443/b https:\/\/old.test:8443\/c https%3A%2F%2Fold.test%3A8443%2Fd https://new.test/e`
	for _, p := range addressPairs([]string{"https://old.test:8443", "https://new.test"}, "https://new.test") {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	if want := `https://new.test/a https://new.test/b https:\/\/new.test\/c https%3A%2F%2Fnew.test%2Fd https://new.test/e`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
