package site_test

import (
	"slices"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Tags are normalized, match only as a whole, and change only if a patch names them.
func TestTags(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	blog, shop, other := r.create(t, anna, "Blog"), r.create(t, anna, "Shop"), r.create(t, ben, "Other")
	set := func(s site.Site, tags ...string) (got site.Site, err error) {
		t.Helper()
		err = r.db.Write(ctx, func(tx *db.Tx) (err error) {
			got, err = r.UpdateTx(ctx, tx, s.Owner, s.ID, site.Patch{Tags: &tags})
			return err
		})
		return got, err
	}
	for _, tt := range []struct {
		s    site.Site
		in   []string
		want string
	}{
		{blog, []string{" Marketing", "client  A", "marketing", ""}, "client a,marketing"},
		{shop, []string{"client 100%", "ÜBERSEE"}, "client 100%,übersee"},
		{other, []string{"marketing"}, "marketing"},
	} {
		got, err := set(tt.s, tt.in...)
		if err != nil || strings.Join(got.Tags, ",") != tt.want {
			t.Errorf("tags %q: %q, %v; want %q", tt.in, got.Tags, err, tt.want)
		}
	}
	for tag, want := range map[string]string{
		"marketing": "Blog", "MARKETING": "Blog", "client a": "Blog", "client": "", "client 1%": "", "client 100%": "Shop", "Übersee": "Shop",
		"a,b": "", "marketing\n": "", "\n": "",
	} {
		list, total, err := r.List(ctx, anna, site.Filter{Tag: tag, Page: 1, Limit: 10})
		got := ""
		if len(list) > 0 {
			got = list[0].Name
		}
		if err != nil || got != want || total != len(list) || len(list) > 1 {
			t.Errorf("sites with %q: %q of %d, %v; want %q", tag, got, total, err, want)
		}
		if _, total, err := r.List(ctx, anna, site.Filter{Tag: tag, Page: 1}); err != nil || total != len(list) {
			t.Errorf("the total with %q: %d, %v; want %d", tag, total, err, len(list))
		}
	}
	if list, _, err := r.List(ctx, anna, site.Filter{Search: "uberse", Page: 1, Limit: 10}); err != nil || len(list) != 1 || list[0].ID != shop.ID {
		t.Errorf("the search finds %v by its tag, %v", list, err)
	}
	tags, err := r.Tags(ctx, anna, nil)
	if want := []site.TagCount{{"client 100%", 1}, {"client a", 1}, {"marketing", 1}, {"übersee", 1}}; err != nil || !slices.Equal(tags, want) {
		t.Errorf("the owner's tags: %v, %v", tags, err)
	}
	if tags, err := r.Tags(ctx, anna, []site.ID{blog.ID}); err != nil || len(tags) != 2 {
		t.Errorf("the tags of one site: %v, %v", tags, err)
	}
	for name, in := range map[string][]string{
		"eleven":      strings.Split("a b c d e f g h i j k", " "),
		"long":        {strings.Repeat("x", site.MaxTag+1)},
		"a comma":     {"a,b"},
		"a line":      {"a\nb"},
		"turned":      {"a\u202eb"},
		"invisible":   {"\u200b"},
		"broken text": {"a\xff"},
	} {
		if got, err := set(blog, in...); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %q, %v; want it refused", name, got.Tags, err)
		}
	}
	if got, err := set(blog); err != nil || len(got.Tags) != 0 || got.Tags == nil {
		t.Errorf("without tags: %#v, %v", got.Tags, err)
	}
}

// Sites listed in First come first on whichever page they would be. The others keep their order.
func TestFirst(t *testing.T) {
	t.Parallel()
	r := open(t)
	var ids []site.ID
	for _, n := range []string{"a", "b", "c", "d"} {
		ids = append(ids, r.create(t, anna, n).ID)
	}
	var got []site.ID
	for page := 1; page <= 2; page++ {
		list, total, err := r.List(t.Context(), anna, site.Filter{Sort: site.ByName, First: []site.ID{ids[2], "site_gone"}, Page: page, Limit: 2})
		if err != nil || total != 4 {
			t.Fatalf("page %d of %d: %v", page, total, err)
		}
		for _, s := range list {
			got = append(got, s.ID)
		}
	}
	if want := []site.ID{ids[2], ids[0], ids[1], ids[3]}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
}

// FreeName returns a name that no site of the owner has, ignoring letter case.
func TestFreeName(t *testing.T) {
	t.Parallel()
	r := open(t)
	long := strings.Repeat("n", 100)
	for _, n := range []string{"Shop", "shop 2", "Shopping", "50%", long} {
		r.create(t, anna, n)
	}
	for name, want := range map[string]string{
		"Blog": "Blog", "SHOP": "SHOP 3", " Shop": "Shop 3", "Shop 3": "Shop 3", "50%": "50% 2", "5": "5", "": "", long: long[:98] + " 2",
	} {
		if got, err := r.FreeName(t.Context(), r.db, anna, name); err != nil || got != want {
			t.Errorf("FreeName(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
	if got, err := r.FreeName(t.Context(), r.db, ben, "Shop"); err != nil || got != "Shop" {
		t.Errorf("another owner's: %q, %v", got, err)
	}
}
