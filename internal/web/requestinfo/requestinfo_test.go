package requestinfo

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

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
