package requestinfo

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestAddrBelievesTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
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
		if got := Addr(r, proxies).String(); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "@"
	if Addr(r, proxies).IsValid() {
		t.Error("a connection without an address has one")
	}
}

func TestNetworkCountsAnIPv6Prefix(t *testing.T) {
	t.Parallel()
	if a, b := Network(netip.MustParseAddr("2001:db8::1")), Network(netip.MustParseAddr("2001:db8::ffff")); a != b {
		t.Errorf("%s and %s count apart", a, b)
	}
	if a, b := Network(netip.MustParseAddr("192.0.2.1")), Network(netip.MustParseAddr("192.0.2.2")); a == b {
		t.Error("two IPv4 addresses count as one")
	}
}

func TestRequestIDIsHarmless(t *testing.T) {
	t.Parallel()
	for id, kept := range map[string]bool{
		"abcd-1234":             true,
		"short":                 false,
		strings.Repeat("a", 65): false,
		"a b c d e f":           false,
		"abcdefgh\x00":          false,
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Request-Id"] = []string{id}
		if got := RequestID(r); (got == id) != kept || !kept && !strings.HasPrefix(got, "req_") {
			t.Errorf("%q became %q", id, got)
		}
	}
}
