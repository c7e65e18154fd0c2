package probe

import (
	"slices"
	"testing"
)

func TestWorse(t *testing.T) {
	t.Parallel()
	before := []Page{{"/", 200, "Blog", 9000, true}, {"/old-bug/", 500, "", 0, false}}
	for name, tt := range map[string]struct {
		change func(p []Page)
		want   string
	}{
		"same":          {func([]Page) {}, ""},
		"a bit smaller": {func(p []Page) { p[0].Size = 7000 }, ""},
		"mended":        {func(p []Page) { p[1] = Page{"/old-bug/", 200, "Fine", 900, true} }, ""},
		"gone":          {func(p []Page) { p[0].Status = 404 }, "The page / answers with status 404 instead of 200"},
		"no answer":     {func(p []Page) { p[0].Status = 0 }, "The page / does not answer"},
		"title":         {func(p []Page) { p[0].Title = "Hacked" }, `The page / has the title "Hacked" instead of "Blog"`},
		"cut off":       {func(p []Page) { p[0].Whole = false }, "The page / breaks off"},
		"empty":         {func(p []Page) { p[0].Size = 2000 }, "The page / has lost most of its content: 2000 bytes instead of 9000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := append([]Page{}, before...)
			tt.change(after)
			if got := Worse(before, after); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// Only paths of the site are checked among the URLs that plugins list.
func TestPaths(t *testing.T) {
	t.Parallel()
	got := Paths([]string{"/", "//elsewhere.test/", "https://elsewhere.test/", "/shop/ x", "/shop/", "/\n"})
	if len(got) != 2 || got[0] != "/" || got[1] != "/shop/" {
		t.Errorf("%q, want / and /shop/", got)
	}
	if n := len(Paths(slices.Repeat([]string{"/"}, 30))); n != 12 {
		t.Errorf("%d paths, want 12", n)
	}
}
