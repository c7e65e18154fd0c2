package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/id"
)

// Settings decide whether a site's live address and its previews are protected.
func TestSettings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		set           Settings
		site, preview bool
	}{
		{Settings{}, false, false},
		{Settings{Password: "none", SignIn: "none"}, false, false},
		{Settings{Password: "previews"}, false, true},
		{Settings{SignIn: "previews"}, false, true},
		{Settings{Password: "all"}, true, true},
		{Settings{Password: "previews", SignIn: "all"}, true, true},
	} {
		if site, preview := tt.set.Protects(false), tt.set.Protects(true); site != tt.site || preview != tt.preview {
			t.Errorf("%+v: the site %v, a preview %v", tt.set, site, preview)
		}
	}
	a := (&Settings{Password: "previews", SignIn: "all", Hash: "h"}).Of("o1", "s1", "blog.test", false)
	if a != (Address{Owner: "o1", Site: "s1", Host: "blog.test", SignIn: true, Hash: "h"}) {
		t.Errorf("%+v", a)
	}
}

// The cookie set after a correct password is valid only for the same site, host and password, and until it expires.
// Slipway's own cookies are removed before a request is forwarded.
func TestCookie(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := Address{Site: "s1", Host: "blog.test", Password: true, Hash: "hash"}
	value := a.pass(now.Add(time.Hour))
	if !a.admits(value, now) {
		t.Error("not admitted")
	}
	for name, other := range map[string]Address{
		"another site":     {Site: "s2", Host: "blog.test", Hash: "hash"},
		"another host":     {Site: "s1", Host: "shop.test", Hash: "hash"},
		"another password": {Site: "s1", Host: "blog.test", Hash: "changed"},
		"no password":      {Site: "s1", Host: "blog.test"},
	} {
		if other.admits(value, now) {
			t.Errorf("%s: admitted", name)
		}
	}
	_, mac, _ := strings.Cut(value, ".")
	for _, forged := range []string{"", ".", "zz." + mac, value + "0", "x" + value, value[1:]} {
		if a.admits(forged, now) {
			t.Errorf("%q is admitted", forged)
		}
	}
	if a.admits(value, now.Add(2*time.Hour)) {
		t.Error("admitted after its end")
	}
	h := http.Header{"Cookie": {"a=b; " + accessCookie + "=" + value, memberCookie + "=x; c=d"}}
	DropCookies(h)
	if h.Get("Cookie") != "a=b; c=d" {
		t.Errorf("Cookie: %q", h["Cookie"])
	}
	h = http.Header{"Cookie": {accessCookie + "=" + value}}
	DropCookies(h)
	if len(h) != 0 {
		t.Errorf("%v", h)
	}
}

// A correct password opens the address. Guesses are limited per visitor and per site.
func TestPassword(t *testing.T) {
	t.Parallel()
	g := New(Config{Password: func(hash, given string) bool { return hash == "hash of "+given }})
	a := Address{Site: "s1", Host: "blog.test", Password: true, Hash: "hash of right"}
	login := func(from, given string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "https://blog.test//evil.test/x?y=z", strings.NewReader(url.Values{accessField: {given}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		if g.Passes(r, a) || g.Ask(w, r, a) {
			t.Error("a form's answer is its redirect")
		}
		return w
	}
	w := login("192.0.2.1:1", "right")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/evil.test/x?y=z" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
	r := httptest.NewRequest("GET", "https://blog.test/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	if !g.Passes(r, a) {
		t.Error("the cookie does not open the address")
	}
	for i := range guessesPerVisitor + 5 {
		want := http.StatusUnauthorized
		if i >= guessesPerVisitor {
			want = http.StatusTooManyRequests
		}
		if w := login("[2001:db8::"+fmt.Sprint(i+1)+"]:1", "wrong"); w.Code != want { // one /64 network is one visitor
			t.Fatalf("guess %d: %d, not %d", i, w.Code, want)
		}
	}
	if w := login("192.0.2.2:1", "right"); w.Code != http.StatusSeeOther {
		t.Errorf("another visitor: %d", w.Code)
	}
	for range 2 * guessesPerSite { // refused guesses don't count against others
		login("192.0.2.3:1", "wrong")
	}
	if w := login("198.51.100.1:1", "right"); w.Code != http.StatusSeeOther {
		t.Errorf("a visitor of another network, after one had gone on guessing: %d", w.Code)
	}
}

// Many guesses at one owner's sites delay the guesses at another owner's by at most one password check.
func TestPasswordChecksAreShared(t *testing.T) {
	t.Parallel()
	checking, check := make(chan string, 100), make(chan struct{})
	g := New(Config{Password: func(hash, _ string) bool { checking <- hash; <-check; return true }})
	var wait sync.WaitGroup
	guess := func(owner id.Owner, site id.Site, from string) {
		wait.Go(func() {
			r := httptest.NewRequest("GET", "https://blog.test/", nil)
			r.SetBasicAuth("", string(site))
			r.RemoteAddr = from + ":1"
			w := httptest.NewRecorder()
			if !g.Ask(w, r, Address{Owner: owner, Site: site, Password: true, Hash: string(owner)}) {
				t.Errorf("%s at %s was answered with %d", owner, site, w.Code)
			}
		})
	}
	for i := range 16 {
		guess("greedy", id.Site(fmt.Sprint("site", i)), fmt.Sprintf("192.0.2.%d", i))
	}
	if first := <-checking; first != "greedy" {
		t.Fatal(first)
	}
	guess("other", "blog", "198.51.100.1")
	if second := <-checking; second != "other" {
		t.Errorf("the second place is %s's, want the other owner's", second)
	}
	close(check)
	wait.Wait()
}
