package traffic

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/visit"
)

// Requests are listed newest first, filtered by time, result and text, only for their owner. A cursor marks where newer
// ones begin.
func TestRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sites(ada, "s1")
	w.sites(eve, "s2")
	begin := w.now
	for i := range 50 {
		status := 200
		if i%10 == 0 {
			status = 500
		}
		if err := w.Add(t.Context(), Batch{Since: w.now}, nil, Details{Site: "s1", Omitted: int64(i % 2), Lines: []visit.Line{{
			Time: w.now, Method: "GET", Host: "a.test", Path: fmt.Sprint("/Page/", i), Status: status, Agent: "curl",
		}}}); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(10 * time.Second)
	}
	paths := func(owner string, f RequestFilter) (string, Place) {
		t.Helper()
		o := ada
		if owner == "eve" {
			o = eve
		}
		list, place, err := w.Requests(t.Context(), o, "s1", f)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, l := range list {
			out = append(out, strings.TrimPrefix(l.Path, "/Page/"))
		}
		return strings.Join(out, " "), place
	}
	at := func(i int) db.Time { return db.At(begin.Add(time.Duration(i) * 10 * time.Second)) }
	for _, tt := range []struct {
		name, want string
		f          RequestFilter
	}{
		{"newest", "47 48 49", RequestFilter{Limit: 3}},
		{"failed", "0 10 20 30 40", RequestFilter{Failed: true, Limit: 100}},
		{"between", "20 21 22", RequestFilter{From: at(20), To: at(23), Limit: 100}},
		{"search", "7", RequestFilter{Search: "get a.test/page/7 200", Limit: 100}},
		{"none", "", RequestFilter{Search: "nothing of the kind", Limit: 100}},
	} {
		if got, _ := paths("ada", tt.f); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if got, _ := paths("eve", RequestFilter{Limit: 100}); got != "" {
		t.Errorf("a stranger reads %s", got)
	}
	_, place := paths("ada", RequestFilter{Limit: 1})
	if got, again := paths("ada", RequestFilter{After: ParsePlace(place.String()), Limit: 10}); got != "" || again != place {
		t.Errorf("after the newest there is %s, at %s", got, again)
	}
	if err := w.Add(t.Context(), Batch{Since: w.now}, nil, Details{Site: "s1", Lines: []visit.Line{{Time: w.now, Path: "/Page/new", Status: 200}}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := paths("ada", RequestFilter{After: place, Limit: 10}); got != "new" {
		t.Errorf("after the newest there is %s, want the new one", got)
	}
	for _, s := range []string{"", "x", "-1.a", "1." + strings.Repeat("a", 100)} {
		if p := ParsePlace(s); p != (Place{}) {
			t.Errorf("%q is the place %v", s, p)
		}
	}
}
