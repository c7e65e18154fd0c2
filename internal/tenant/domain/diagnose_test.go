package domain

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func mustPort(t *testing.T, addr string) uint16 {
	t.Helper()
	return netip.MustParseAddrPort(addr).Port()
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// The diagnosis explains what the DNS shows and which record must change.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	ours := addrs("203.0.113.7", "2001:db8::7")
	for name, tt := range map[string]struct {
		name    string
		s       observed
		points  bool
		unknown bool
		problem string // code, or empty for none
		records string // type=status of each dns[] record
		reason  string // text that it must contain
	}{
		"nothing yet, apex": {"example.com", observed{}, false, false, "", "A=pending", "no address yet"},
		"nothing yet, sub":  {"www.example.com", observed{}, false, false, "", "CNAME=pending", "ann-1.sites.test"},
		"our addresses":     {"example.com", observed{addrs: ours}, true, false, "", "A=valid AAAA=valid", ""},
		"ours, IPv4 alone":  {"example.com", observed{addrs: ours[:1]}, true, false, "", "A=valid", ""},
		"alias to the site": {
			"www.example.com",
			observed{cname: "ann-1.sites.test", chain: []string{"ann-1.sites.test"}},
			true, false, "", "CNAME=valid", "",
		},
		"alias over a hop": {
			"www.example.com",
			observed{cname: "example.com", chain: []string{"example.com", "ann-1.sites.test"}, addrs: ours},
			true, false, "", "CNAME=valid", "",
		},
		"alias to nowhere": {
			"www.example.com",
			observed{cname: "gone.test", chain: []string{"gone.test"}},
			false, false, "wrong_target", "CNAME=invalid", "gone.test, which doesn't resolve",
		},
		"elsewhere": {
			"example.com",
			observed{addrs: addrs("198.51.100.1")},
			false, false, "wrong_target", "A=invalid", "198.51.100.1, which is not this service",
		},
		"IPv6 elsewhere": {
			"example.com",
			observed{addrs: addrs("203.0.113.7", "2001:db8::bad")},
			false, false, "ipv6_mismatch", "A=valid AAAA=invalid", "AAAA record points to 2001:db8::bad",
		},
		"mixed": {
			"example.com",
			observed{addrs: addrs("203.0.113.7", "198.51.100.1")},
			false, false, "mixed_addresses", "A=invalid", "also to 198.51.100.1",
		},
		"behind a CDN": {
			"example.com",
			observed{addrs: addrs("104.16.1.1", "2606:4700::1")},
			true, false, "cdn", "A=valid AAAA=valid", "",
		},
		"CDN by its alias": {
			"www.example.com",
			observed{cname: "d1.cloudfront.net", chain: []string{"d1.cloudfront.net"}, addrs: addrs("198.51.100.1")},
			true, false, "cdn", "CNAME=valid", "",
		},
		"half a CDN": {
			"example.com",
			observed{addrs: addrs("104.16.1.1", "198.51.100.1")},
			false, false, "wrong_target", "A=invalid", "198.51.100.1",
		},
		"half a silence": {"example.com", observed{addrs: ours[:1], mute: "AAAA"}, true, false, "no_answer", "A=valid", ""},
		"silence, apex": {
			"example.com",
			observed{addrErr: errors.New("x")},
			false, true, "no_answer", "A=pending", "are not responding",
		},
		"silence, sub": {
			"www.example.com",
			observed{addrErr: errors.New("x")},
			false, true, "no_answer", "CNAME=pending", "are not responding",
		},
		"CAA of others": {
			"example.com",
			observed{addrs: ours, caaName: "example.com", caa: []string{"other.example", ""}},
			true, false, "caa", "A=valid AAAA=valid", "",
		},
		"CAA forbids all": {
			"example.com",
			observed{addrs: ours, caaName: "example.com", caa: []string{""}},
			true, false, "caa", "A=valid AAAA=valid", "",
		},
		"CAA of ours": {
			"example.com",
			observed{addrs: ours, caaName: "example.com", caa: []string{"ca.test"}},
			true, false, "", "A=valid AAAA=valid", "",
		},
		"CAA silent": {"example.com", observed{addrs: ours, caaErr: errors.New("x")}, true, false, "caa", "A=valid AAAA=valid", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.s.ours, tt.s.cas = ours, []string{"ca.test"}
			j := diagnose(claim{
				name:   tt.name,
				token:  "slipway-t",
				target: "ann-1.sites.test",
				below:  "sites.test",
				proven: true,
				public: true,
			}, tt.s)
			var records []string
			for _, r := range j.DNS {
				records = append(records, r.Type+"="+string(r.Status))
				if r.Status != RecordValid && r.Reason == "" {
					t.Errorf("%s %s without a reason", r.Type, r.Status)
				}
			}
			if j.points != tt.points || j.unknown != tt.unknown || strings.Join(
				records,
				" ",
			) != tt.records || (j.reason == "") != (tt.reason == "") || !strings.Contains(j.reason, tt.reason) {
				t.Errorf("points %v, unknown %v, %v, reason %q", j.points, j.unknown, records, j.reason)
			}
			if tt.problem == "" && len(j.Problems) != 0 || tt.problem != "" && (len(j.Problems) != 1 || !has(j.Problems, tt.problem)) {
				t.Errorf("problems: %+v, want %q", j.Problems, tt.problem)
			}
		})
	}
}

// CAA records are searched up the tree, and wildcards use issuewild (RFC 8659).
func TestCAAIsFoundAbove(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Certificates = authority{cas: []string{"ca.test"}} }, nil)
	w.zone.Set("example.com", `CAA 0 issue "ca.test; account=1"`, `CAA 0 issuewild ";"`)
	w.zone.Set("mail.example.com", `CAA 0 iodef "mailto:x@example.com"`)
	for name, want := range map[string]struct {
		permitted string
		at        string
	}{
		"a.b.example.com":  {"ca.test", "example.com"},
		"*.example.com":    {"", "example.com"},
		"mail.example.com": {"", ""},
		"free.org":         {"", ""},
	} {
		permitted, at, err := w.authorities(t.Context(), name)
		if err != nil || strings.Join(permitted, " ") != want.permitted || at != want.at {
			t.Errorf("%s: %v at %q, %v", name, permitted, at, err)
		}
	}
	w.zone.Fail("broken.org", dns.RcodeServerFailure)
	if _, _, err := w.authorities(t.Context(), "www.broken.org"); err == nil {
		t.Error("silence was taken for no CAA")
	}
	w.zone.Set("x.example.com", here)
	if dom := w.verify(w.add(ann, "*.example.com")); !has(dom.Problems, "caa") {
		t.Errorf("got %+v", dom.Problems)
	}
}

// Records read from a customer's zone are limited in number and length.
func TestFindingsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	var records []string
	for i := range 40 {
		records = append(records, "TXT "+strings.Repeat(string(rune('a'+i%26)), 250)+" "+strings.Repeat("y", 250))
	}
	w.zone.Set("_slipway.example.com", records...) // too large for UDP, too
	dom := w.verify(w.add(ann, "example.com"))
	if v := dom.Verification[0]; len(v.Current) != 8 || slices.ContainsFunc(v.Current, func(s string) bool { return len(s) > 255 }) {
		t.Errorf("%d values are kept, %d bytes", len(v.Current), len(v.Current[0]))
	}
}

func TestAddressesOfThisService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Addrs = nil; c.SiteDomain = "apps.example.net" }, nil)
	w.zone.Set("ann-1.apps.example.net", "A 203.0.113.9")
	if got := w.ourAddrs(t.Context(), "ann-1.apps.example.net"); !slices.Equal(got, addrs("203.0.113.9")) {
		t.Errorf("by name: %v", got)
	}
	if got := w.ourAddrs(t.Context(), "ann-1.localhost"); !slices.Equal(got, addrs("127.0.0.1", "::1")) {
		t.Errorf("localhost: %v", got)
	}
	all, err := net.InterfaceAddrs()
	if got := w.ourAddrs(t.Context(), "bob-1.apps.example.net"); err != nil || len(all) > 0 && len(got) == 0 {
		t.Errorf("this machine: %v", got)
	}
}

// The resolver's responses are validated before use.
func TestDNSRefusesWhatIsNoAnswer(t *testing.T) {
	t.Parallel()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	evil := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg)
		m.SetReply(q)
		switch strings.TrimSuffix(q.Question[0].Name, ".") {
		case "other.test":
			m.Question[0].Name = "else.test."
		case "type.test":
			m.Question[0].Qtype = dns.TypeMX
		case "none.test":
			m.Question = nil
		case "echo.test":
			m = q
		case "garbage.test":
			w.Write([]byte{1, 2, 3})
			return
		case "refused.test":
			m.Rcode = dns.RcodeRefused
		}
		w.WriteMsg(m)
	})
	s := &dns.Server{PacketConn: pc, Handler: evil}
	go s.ActivateAndServe()
	r := &DNS{Server: pc.LocalAddr().String()}
	for _, name := range []string{"other.test", "type.test", "none.test", "echo.test", "garbage.test", "refused.test"} {
		if m, err := r.Ask(t.Context(), netip.AddrPort{}, name, dns.TypeA); err == nil {
			t.Errorf("%s: believed %v", name, m)
		}
	}
	if _, err := r.Ask(t.Context(), netip.AddrPort{}, "fine.test", dns.TypeA); err != nil {
		t.Error(err)
	}
}
