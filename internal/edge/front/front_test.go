package front

import (
	"crypto/tls"
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestAddrBelievesTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	proxies := Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}
	for name, tt := range map[string]struct{ peer, forwarded, want string }{
		"plain":               {"203.0.113.9:1", "", "203.0.113.9"},
		"stranger's header":   {"203.0.113.9:1", "198.51.100.1", "203.0.113.9"},
		"proxy":               {"10.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		"proxy behind proxy":  {"10.0.0.1:1", "198.51.100.1, 10.0.0.2", "198.51.100.1"},
		"forged on the left":  {"10.0.0.1:1", "127.0.0.1, 198.51.100.1", "198.51.100.1"},
		"nonsense":            {"10.0.0.1:1", "198.51.100.1, <script>", "10.0.0.1"},
		"with a port":         {"10.0.0.1:1", "198.51.100.1:4711", "198.51.100.1"},
		"mapped":              {"[::ffff:203.0.113.9]:1", "", "203.0.113.9"},
		"v6 proxy, mapped in": {"[fd00::1]:1", "::ffff:198.51.100.1", "198.51.100.1"},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		if got := proxies.Addr(r).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	if proxies.Addr(r).IsValid() {
		t.Error("a connection without an address has one")
	}
}

// If Header is set, X-Forwarded-For is ignored, and Header must hold a single address.
func TestAddrInAHeaderOfTheProxy(t *testing.T) {
	t.Parallel()
	proxies := Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Header: "cf-connecting-ip"}
	for name, tt := range map[string]struct {
		peer, want string
		header     []string
	}{
		"proxy":     {"10.0.0.1:1", "198.51.100.1", []string{"198.51.100.1"}},
		"stranger":  {"203.0.113.9:1", "203.0.113.9", []string{"198.51.100.1"}},
		"none":      {"10.0.0.1:1", "10.0.0.1", nil},
		"two":       {"10.0.0.1:1", "10.0.0.1", []string{"198.51.100.1", "198.51.100.2"}},
		"a list":    {"10.0.0.1:1", "10.0.0.1", []string{"198.51.100.1, 198.51.100.2"}},
		"nonsense":  {"10.0.0.1:1", "10.0.0.1", []string{"me"}},
		"a trusted": {"10.0.0.1:1", "10.0.0.9", []string{"10.0.0.9"}},
		"IPv6":      {"10.0.0.1:1", "2001:db8::1", []string{"2001:db8::1"}},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = tt.peer
		r.Header.Set("X-Forwarded-For", "192.0.2.1")
		for _, v := range tt.header {
			r.Header.Add("CF-Connecting-IP", v)
		}
		if got := proxies.Addr(r).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
		// A second call on the same request returns the same result.
		if again, forwarded := proxies.Visitor(r); proxies.Addr(again).String() != tt.want || forwarded != (tt.peer == "10.0.0.1:1") {
			t.Errorf("%s: then %s, forwarded: %v", name, proxies.Addr(again), forwarded)
		}
	}
}

func TestSchemeOfVisitors(t *testing.T) {
	t.Parallel()
	proxies := Proxies{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for name, tt := range map[string]struct {
		peer  string
		over  bool // over TLS
		proto []string
		want  bool
	}{
		"ended by the proxy":           {"10.0.0.1:1", false, []string{"https"}, true},
		"of a stranger":                {"203.0.113.9:1", false, []string{"https"}, false},
		"plain at the proxy":           {"10.0.0.1:1", true, []string{"http"}, false},
		"said by a stranger":           {"203.0.113.9:1", true, []string{"http"}, true},
		"unsaid, plain":                {"10.0.0.1:1", false, nil, false},
		"unsaid, over TLS":             {"10.0.0.1:1", true, nil, true},
		"nonsense":                     {"10.0.0.1:1", false, []string{"gopher"}, false},
		"sockets":                      {"10.0.0.1:1", false, []string{"wss"}, true},
		"added to what a visitor says": {"10.0.0.1:1", false, []string{"https", "http"}, false},
		"added in one line":            {"10.0.0.1:1", false, []string{"http, HTTPS"}, true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = tt.peer, "Blog.sites.test:80"
		if tt.over {
			r.TLS = &tls.ConnectionState{}
		}
		for _, v := range tt.proto {
			r.Header.Add("X-Forwarded-Proto", v)
		}
		got, _ := proxies.Visitor(r)
		if (got.TLS != nil) != tt.want || (r.TLS != nil) != tt.over {
			t.Errorf("%s: TLS %v, want %v", name, got.TLS != nil, tt.want)
		}
		if got.TLS != nil && !tt.over && got.TLS.ServerName != "blog.sites.test" {
			t.Errorf("%s: of %q", name, got.TLS.ServerName)
		}
	}
}
