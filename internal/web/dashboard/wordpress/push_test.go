package wordpress

import (
	"errors"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/wordpress/difference"
	"slipway/internal/wordpress/wordpress"
)

// pushed is a comparison of two sites that differ in every kind of content.
func pushed() wordpress.Comparison {
	amount := func(n, newer int64) *difference.Amount {
		return &difference.Amount{Count: n, Newer: newer, Changed: 1_700_000_000}
	}
	side := func(posts, orders, newer int64) wordpress.State {
		return wordpress.State{
			Version: "6.9", Plugins: []wordpress.Extension{{Active: true}, {}},
			Content: difference.Content{
				Posts: []difference.Amount{
					{Type: "post", Name: "Posts", Count: posts, Newer: newer},
					{Type: "shop_order", Name: "Orders", Count: orders, Newer: newer / 4},
					{Type: "recipe", Name: "Recipes", Count: 7},
				},
				Users: amount(3, 0), Files: amount(1200, 0), Options: difference.Digests{"a": "1"},
			},
		}
	}
	return wordpress.Comparison{
		From: wordpress.Side{State: side(20, 5, 0)}, To: wordpress.Side{State: side(28, 6, 12)},
		Since: db.Time(1_700_000_000_000), Known: true, Options: []string{"blogname"},
		Files: &difference.FileDiff{Removed: 3, Added: 1, Examples: []string{"uploads/a\xff.png"}},
	}
}

// The rows show what the push overwrites in the target. A value that one of the two sites doesn't report is unknown,
// neither equal nor different.
func TestPushRows(t *testing.T) {
	t.Parallel()
	says := func(c wordpress.Comparison) map[string]pushRow {
		out := map[string]pushRow{}
		for _, r := range pushRows(c) {
			out[r.Name] = r
		}
		return out
	}
	c := pushed()
	if got := amounts(c.Lost()); got != "12 posts and 3 orders" {
		t.Errorf("newer is %q", got)
	}
	rows := says(c)
	for name, want := range map[string][3]string{
		"Posts":     {"20", "28", "12 changed in the target"},
		"Recipes":   {"7", "7", "Same"},
		"Users":     {"3", "3", "Same"},
		"Options":   {"1", "1", "1 different"},
		"Plugins":   {"2 plugins, 1 active", "2 plugins, 1 active", "Same"},
		"WordPress": {"6.9", "6.9", "Same"},
		"Comments":  {"Unknown", "Unknown", ""},
		"Files":     {"1,200, 0 B", "1,200, 0 B", "3 only in the target, 1 new"},
	} {
		r := rows[name]
		if got := [3]string{r.From.Text, r.To.Text, r.Says}; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := rows["Files"].Examples; len(got) != 1 || got[0] != "uploads/a\uFFFD.png" {
		t.Errorf("examples of files: %q", got)
	}
	c.From.State.Content.Posts[0].Newer, c.To.State.Content.Posts[0].Newer = 2, 1
	if got := says(c)["Posts"].Says; got != "1 changed in the target, 2 changed here" {
		t.Errorf("changed on both sides: %q", got)
	}
	c.Since = 0 // never copied, so only counts can be compared
	c.From.State.Content.Posts[0].Count = 28
	if got := says(c)["Posts"].Says; got != "Same" {
		t.Errorf("the same count of unrelated sites: %q", got)
	}
	c.To = wordpress.Side{Err: errors.New("asleep")}
	c.Files, c.Known = nil, false
	for _, name := range []string{"Title", "Plugins", "Posts", "Options", "Files"} {
		if r := says(c)[name]; r.To.Text != "Unknown" || r.Says != "" {
			t.Errorf("%s of a site that doesn't answer: %+v", name, r)
		}
	}
}
