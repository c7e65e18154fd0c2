package egress

import (
	"net/netip"
	"strings"
	"testing"
)

// refused are addresses that must not be reached, in many notations.
var refused = strings.Fields(`127.0.0.1 0.0.0.0 0.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1
	100.100.100.200 192.0.0.192 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255
	192.88.99.1 168.63.129.16 :: ::1 ::ffff:127.0.0.1 ::ffff:169.254.169.254 ::127.0.0.1 ::a9fe:a9fe 64:ff9b::7f00:1
	64:ff9b::a9fe:a9fe 64:ff9b:1::a9fe:a9fe 2002:7f00:1:: 2002:a9fe:a9fe:: 2001:0:4136:e378:8000:63bf:5601:5601
	fe80::1 fe80::5efe:7f00:1 fec0::1 fc00::1 fd00:ec2::254 fd7a:115c:a1e0::1 ff02::1 100::1 2001:db8::1 3fff::1
	5f00::1 2001:10::1 2001:20::1 2620:4f:8000::1 ::ffff:0:7f00:1`)

func TestPublic(t *testing.T) {
	t.Parallel()
	if len(refused) != 46 {
		t.Fatalf("%d vectors, want 46", len(refused))
	}
	for _, s := range append(refused, "fe80::1%eth0", "2606:4700::1%eth0") {
		if Public(netip.MustParseAddr(s)) {
			t.Errorf("Public(%s) = true", s)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("Public accepts the zero address")
	}
	for _, s := range []string{
		"1.1.1.1", "140.82.121.4", "::ffff:8.8.8.8", "2606:4700:4700::1111", "2a01:4f8::1", "11.0.0.1", "172.32.0.1",
	} {
		if !Public(netip.MustParseAddr(s)) {
			t.Errorf("Public(%s) = false", s)
		}
	}
}

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"127.0.0.1": "127.0.0.1/32", "10.1.2.3/8": "10.0.0.0/8", "::1": "::1/128", "::ffff:10.0.0.0/104": "10.0.0.0/8",
		"": "", "10.0.0.0/33": "", "localhost": "", "fe80::1%eth0": "", "::ffff:0.0.0.0/90": "",
	} {
		got, err := ParseNetworks([]string{in})
		if (err == nil) != (want != "") || err == nil && got[0].String() != want {
			t.Errorf("ParseNetworks(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
}

// Public is false for all special addresses that the standard library knows, and gives the same result for an IPv4
// address and its IPv6-mapped form.
func FuzzPublic(f *testing.F) {
	for _, s := range refused {
		f.Add(netip.MustParseAddr(s).AsSlice())
	}
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		p := Public(a)
		u := a.Unmap()
		if p && (u.IsPrivate() || u.IsLoopback() || u.IsLinkLocalUnicast() || u.IsMulticast() || u.IsUnspecified()) {
			t.Errorf("Public(%s) = true", a)
		}
		if u.Is4() && Public(netip.AddrFrom16(u.As16())) != p {
			t.Errorf("%s: mapped form treated differently", a)
		}
	})
}
