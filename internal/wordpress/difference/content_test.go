package difference

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// The description of a site's content is limited, and data for a comparison only isn't stored.
func TestContentIsBounded(t *testing.T) {
	t.Parallel()
	said := `{"posts": [{"type": "` + strings.Repeat("t", 300) + `", "count": -5, "newer": -1, "changed": 999999999999999}` + strings.Repeat(`,{"type":"x"}`, 200) + `],
		"users": {"count": 3, "newer": 2, "changed": 1700000000}, "files": {"count": 9}, "options": {"a": "1"}}`
	var c Content
	if err := json.Unmarshal([]byte(said), &c); err != nil {
		t.Fatal(err)
	}
	c.Bound()
	if p := c.Posts[0]; len(c.Posts) != maxPostTypes || len(p.Type) > 30 || p.Count != 0 || p.Newer != 0 || p.Changed != 0 || p.Name != p.Type {
		t.Errorf("%d types, the first %+v", len(c.Posts), p)
	}
	if c.Files != nil || c.Comments != nil || c.Users.Changed.At() != 1_700_000_000_000 {
		t.Errorf("%+v", c)
	}
	if got := c.WithoutComparison(); got.Options != nil || got.Users.Newer != 0 || got.Users.Count != 3 || c.Users.Newer != 2 {
		t.Errorf("stored: %+v", got)
	}
	names := Digests{"same": "1", "value": "1", "here": "1"}.Differing(Digests{"same": "1", "value": "2", "there": "1"})
	if !slices.Equal(names, []string{"here", "there", "value"}) {
		t.Errorf("options that differ: %v", names)
	}
}
