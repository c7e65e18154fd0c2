package site_test

import (
	"fmt"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

func TestListPagesFiltersAndCounts(t *testing.T) {
	t.Parallel()
	r := open(t)
	var ids []site.ID
	for i := range 5 {
		ids = append(ids, r.create(t, anna, fmt.Sprint("site ", i)).ID)
	}
	r.create(t, ben, "other")
	r.activate(t, ids[0], "dep_1")
	for name, tt := range map[string]struct {
		f           site.Filter
		rows, total int
	}{
		"all":           {site.Filter{Page: 1, Limit: 100}, 5, 5},
		"second page":   {site.Filter{Page: 2, Limit: 2}, 2, 5},
		"last page":     {site.Filter{Page: 3, Limit: 2}, 1, 5},
		"past the end":  {site.Filter{Page: 9, Limit: 2}, 0, 5},
		"static":        {site.Filter{Page: 1, Limit: 100, Type: site.Static}, 5, 5},
		"wordpress":     {site.Filter{Page: 1, Limit: 100, Type: site.WordPress}, 0, 0},
		"active":        {site.Filter{Page: 1, Limit: 100, Status: site.Active}, 1, 1},
		"pending":       {site.Filter{Page: 1, Limit: 2, Status: site.Pending}, 2, 4},
		"none of it":    {site.Filter{Page: 1}, 0, 5},
		"some":          {site.Filter{Page: 1, Limit: 2, Only: []site.ID{ids[1], ids[3], ids[4], "site_gone"}}, 2, 3},
		"some, active":  {site.Filter{Page: 1, Limit: 2, Only: ids[:2], Status: site.Active}, 1, 1},
		"some of none":  {site.Filter{Page: 1, Limit: 2, Only: []site.ID{}}, 0, 0},
		"exactly full":  {site.Filter{Page: 1, Limit: 5}, 5, 5},
		"type + status": {site.Filter{Page: 1, Limit: 2, Type: site.Static, Status: site.Active}, 1, 1},
	} {
		list, total, err := r.List(t.Context(), anna, tt.f)
		if err != nil || len(list) != tt.rows || total != tt.total {
			t.Errorf("%s: %d rows of %d, %v; want %d of %d", name, len(list), total, err, tt.rows, tt.total)
		}
	}
	list, _, _ := r.List(t.Context(), anna, site.Filter{Page: 1, Limit: 100})
	for i, s := range list {
		if s.ID != ids[4-i] {
			t.Fatalf("place %d holds %s, want the newest first", i, s.ID)
		}
	}
	r.write(t, func(tx *db.Tx) error { return r.DeleteTx(t.Context(), tx, anna, ids[0]) })
	if _, total, _ := r.List(t.Context(), anna, site.Filter{Page: 1, Limit: 1, Status: site.Active}); total != 0 {
		t.Errorf("after deleting, %d active sites are counted", total)
	}
}

func TestNumbersOfSites(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	a := r.create(t, anna, "a")
	b := r.create(t, ben, "b")
	c := r.create(t, anna, "c")
	r.activate(t, a.ID, "dep_1")
	tally, err := r.Tally(ctx, anna)
	if err != nil || tally[site.Active] != 1 || tally[site.Pending] != 1 || tally[site.Failed] != 0 {
		t.Errorf("Tally: %v, %v", tally, err)
	}
	owned, err := r.Owned(ctx)
	if err != nil || owned[anna] != 2 || owned[ben] != 1 || len(owned) != 2 {
		t.Errorf("Owned: %v, %v", owned, err)
	}
	var ids []site.ID
	for page := 1; page <= 3; page++ {
		list, err := r.All(ctx, page, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			ids = append(ids, s.ID)
		}
	}
	if want := []site.ID{c.ID, b.ID, a.ID}; fmt.Sprint(ids) != fmt.Sprint(want) {
		t.Errorf("All: %v, want %v", ids, want)
	}
}

// Search ignores letter case in every script and finds the same on both databases.
func TestSearch(t *testing.T) {
	t.Parallel()
	r := open(t)
	ctx := t.Context()
	for _, n := range []struct{ name, repository string }{
		{"My Blog", "git.test/acme/journal"},
		{"Blog_2 100%", "git.test/acme/Site"},
		{"МОСКВА ЁЛКА", "git.test/acme/site"},
		{"Straße nach Zürich", "git.test/acme/site"},
		{"İstanbul", "git.test/acme/site"},
		{"ＷＩＤＥ", "git.test/acme/site"},
		{`back\slash`, "git.test/acme/site"},
	} {
		if _, err := r.Create(ctx, anna, site.NewSite{Name: n.name, Type: "static", Repository: n.repository}); err != nil {
			t.Fatal(err)
		}
	}
	all, _, err := r.List(ctx, anna, site.Filter{Page: 1, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]site.ID{}
	for _, s := range all {
		ids[s.Name] = s.ID
	}
	other := r.create(t, ben, "Ben's blog")
	r.write(t, func(tx *db.Tx) error {
		for i, d := range [][3]site.ID{
			{site.ID(string(anna)), ids["My Blog"], "shop.example"},
			{site.ID(string(anna)), ids["İstanbul"], "xn--mnchen-3ya.example"},
			{site.ID(string(ben)), other.ID, "bens-shop.example"},
		} {
			_, err := tx.Exec(ctx, `
				INSERT INTO domains (id, owner_id, site_id, name, zone, status, reason, is_primary, redirect_to, proof, findings, checks, tries, pending_at,
					ssl_status, cert_issuer, cert_error, created_at, updated_at)
				VALUES ($1, $2, $3, $4, '', 'pending', '', FALSE, '', '', '{}', 0, 0, 0, 'pending', '', '', 0, 0)`, fmt.Sprint(
				"dom_",
				i,
			), d[0], d[1], d[2])
			if err != nil {
				return err
			}
		}
		return nil
	})
	for text, want := range map[string]string{
		"blog":            "Blog_2 100%, My Blog",
		"  BLOG  ":        "Blog_2 100%, My Blog",
		"my  blog":        "My Blog",
		"my-blog":         "My Blog", // matches the subdomain
		"journal":         "My Blog",
		"ACME/site":       "back\\slash, ＷＩＤＥ, İstanbul, Straße nach Zürich, МОСКВА ЁЛКА, Blog_2 100%",
		"100%":            "Blog_2 100%",
		"%":               "Blog_2 100%",
		"_":               "Blog_2 100%",
		`k\s`:             "back\\slash",
		"москва":          "МОСКВА ЁЛКА",
		"елка":            "МОСКВА ЁЛКА",
		"STRASSE":         "Straße nach Zürich",
		"zurich":          "Straße nach Zürich",
		"istanbul":        "İstanbul",
		"wide":            "ＷＩＤＥ",
		"shop.ex":         "My Blog",
		"münchen":         "İstanbul",
		"MÜNCHEN.example": "İstanbul",
		"ben":             "",
		"nothing":         "",
		"g\ngit":          "",
		"blog\x00":        "Blog_2 100%, My Blog",
		"blog \xff\xfe":   "Blog_2 100%, My Blog",
		"'; --":           "",
		"\u0301":          "",
	} {
		list, total, err := r.List(ctx, anna, site.Filter{Search: text, Page: 1, Limit: 100})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var names []string
		for _, s := range list {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, ", "); got != want || total != len(list) {
			t.Errorf("%q finds %q of %d, want %q", text, got, total, want)
		}
	}
	// Search works together with pages and other filters.
	for name, tt := range map[string]struct {
		f           site.Filter
		rows, total int
	}{
		"first page":   {site.Filter{Search: "acme", Page: 1, Limit: 3}, 3, 7},
		"last page":    {site.Filter{Search: "acme", Page: 3, Limit: 3}, 1, 7},
		"past the end": {site.Filter{Search: "acme", Page: 4, Limit: 3}, 0, 7},
		"no page":      {site.Filter{Search: "acme", Page: 1}, 0, 7},
		"active":       {site.Filter{Search: "acme", Page: 1, Limit: 3, Status: site.Active}, 0, 0},
		"blank":        {site.Filter{Search: " \x00\n", Page: 3, Limit: 3}, 1, 7},
		"some":         {site.Filter{Search: "blog", Page: 1, Limit: 3, Only: []site.ID{ids["My Blog"], ids["İstanbul"]}}, 1, 1},
		"the longest":  {site.Filter{Search: strings.Repeat("ﷺ", site.MaxSearch), Page: 1, Limit: 3}, 0, 0},
	} {
		list, total, err := r.List(ctx, anna, tt.f)
		if err != nil || len(list) != tt.rows || total != tt.total {
			t.Errorf("%s: %d rows of %d, %v; want %d of %d", name, len(list), total, err, tt.rows, tt.total)
		}
	}
	if _, _, err := r.List(ctx, anna, site.Filter{
		Search: strings.Repeat("é", site.MaxSearch+1),
		Page:   1,
		Limit:  3,
	}); !fault.Is(err, fault.Invalid) {
		t.Errorf("too long: %v", err)
	}
	// After a rename, search finds the new name and not the old one.
	name := "Почта"
	r.write(t, func(tx *db.Tx) error {
		_, err := r.UpdateTx(ctx, tx, anna, ids["My Blog"], site.Patch{Name: &name})
		return err
	})
	for text, want := range map[string]int{"почта": 1, "my blog": 0, "my-blog": 1} {
		if _, total, _ := r.List(ctx, anna, site.Filter{Search: text, Page: 1, Limit: 1}); total != want {
			t.Errorf("after the change, %q finds %d, want %d", text, total, want)
		}
	}
}
