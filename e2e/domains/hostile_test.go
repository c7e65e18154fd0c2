package domains

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// Names that can't be custom domains are rejected with a clear error, and unusual spellings of valid names are
// normalized.
func TestNames(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	blog := h.live(h.ann, "blog", "hello")
	label := strings.Repeat("a", 63)
	for _, name := range []string{
		"", " ", ".", "..", "com", "*.com", "co.uk", "*.co.uk", "github.io", "*.github.io", "localhost", "a.localhost",
		"x.local", "x.onion", "x.arpa", "x.invalid", "a..b.com", ".a.com", "a.com..", "-a.com", "a-.com",
		"*.*.example.com", "a.*.example.com", "*example.com", "*", "*.", "**.example.com", "*.127.0.0.1",
		"_dmarc.example.com", "a_b.example.com", "_slipway.example.com", "127.0.0.1", "1.2.3.4", "::1", "[::1]",
		"0x7f.1", "2130706433", "1.2.3.4.5", "https://example.com", "example.com/", "example.com:443",
		"user@example.com", "example.com?x", "exa mple.com", "exam\nple.com", "\ufeff.com", "xn--.com", "xn--a.com",
		"xn--ls8h=.com", "xn--\u00fc.com", "\u200d.com", "😀.",
		label + "a.com",
		strings.Join([]string{label, label, label, label}, "."),
		strings.Repeat("a.", 126) + "com",
		strings.Repeat("x", 5000),
		strings.Repeat("ü", 300) + ".com",
		"<script>.com", "'; DROP TABLE domains; --", "example.com,evil.com", "example.com evil.com", "a.123",
	} {
		if got := h.refused(h.ann, blog, name); got != "400 invalid_domain" {
			t.Errorf("%.60q: %s", name, got)
		}
		if name == "github.io" {
			continue // a registered domain, whose availability can be checked
		}
		a := h.do(h.ann, "POST", "/domains/check", map[string]any{"domain": name})
		var e struct{ Error, Details string }
		if err := json.Unmarshal(a.Body, &e); err != nil || a.Status != 400 || e.Error == "" || e.Details == "" || len(a.Body) > 3000 {
			t.Errorf("check of %.60q: %d %.200s", name, a.Status, a.Body)
		}
	}
	for _, body := range []string{
		`{}`, `{"name":null}`, `{"name":5}`, `{"name":["a.com"]}`, `{"name":"a.com","redirectTo":5}`,
		`{"name":"a.com","primary":"yes"}`, `[]`, `{"name":"a.com"`, "\xff", `{"name":"\ud800.com"}`,
	} {
		a := h.do(h.ann, "POST", "/sites/"+blog.ID+"/domains", []byte(body))
		var e struct{ Error string }
		if err := json.Unmarshal(a.Body, &e); err != nil || a.Status != 400 || e.Error == "" {
			t.Errorf("%s: %d %.200s", body, a.Status, a.Body)
		}
	}
	for name, want := range map[string]string{
		"Shop.Example.COM.":         "shop.example.com",
		"bücher.example.com":        "xn--bcher-kva.example.com",
		"BÜCHER.example.org":        "xn--bcher-kva.example.org",
		"☃.example.net":             "xn--n3h.example.net",
		"faß.example.com":           "xn--fa-hia.example.com",
		"*.Bücher.example.com":      "*.xn--bcher-kva.example.com",
		"xn--bcher-kva.example.net": "xn--bcher-kva.example.net",
		"example.com":               "example.com",
		"a.b.c.d.e.example.com":     "a.b.c.d.e.example.com",
		"my.github.io":              "my.github.io",
		"ｆｕｌｌ.example.com":          "full.example.com",
		label + ".example.com":      label + ".example.com",
		"раураl.example.com":        "xn--l-7sba6dbr.example.com",
	} {
		if got := h.add(h.ann, blog, name).Name; got != want {
			t.Errorf("%s became %s, want %s", name, got, want)
		}
	}
	for _, again := range []string{"SHOP.example.com", "xn--bcher-kva.example.com", "XN--BCHER-KVA.example.com.", "full.example.com"} {
		if got := h.refused(h.ann, blog, again); got != "409 domain_exists" {
			t.Errorf("%s once more: %s", again, got)
		}
	}
}

// Whatever a DNS zone returns, a check ends, stores little and reports a true problem.
func TestHostileZones(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	blog := h.live(h.ann, "blog", "hello")
	token := h.add(h.ann, blog, "scratch.test").Verification[0].Value
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("TXT %q %q", strings.Repeat("x", 250), "v"+strconv.Itoa(i)+strings.Repeat("\\200", 60)))
	}
	h.zone.Set("_slipway.huge.test", many...)
	h.zone.Set("huge.test", "A 127.0.0.1")
	h.zone.Set("loop.test", "CNAME loop2.test.")
	h.zone.Set("loop2.test", "CNAME loop.test.")
	h.zone.Set("_slipway.loop.test", "CNAME _slipway.loop.test.")
	h.zone.Set("script.test", "CNAME \\<script\\>alert\\(1\\).evil.test.")
	h.zone.Set("_slipway.others.test", "CNAME proof.evil.test.")
	h.zone.Set("proof.evil.test", `TXT "`+token+`"`)
	h.zone.Set("others.test", "A 127.0.0.1")
	for _, name := range []string{"broken.test", "_slipway.broken.test"} {
		h.zone.Fail(name, dns.RcodeServerFailure)
	}
	for _, name := range []string{"refused.test", "_slipway.refused.test"} {
		h.zone.Fail(name, dns.RcodeRefused)
	}
	h.zone.Silence("silent.test")
	h.zone.Silence("_slipway.silent.test")
	h.zone.Tamper(func(q dns.Question, m *dns.Msg) {
		name := strings.ToLower(q.Name)
		switch {
		case name == "_slipway.liar.test.":
			rr, _ := dns.NewRR(`other.test. 1 IN TXT "` + token + `"`)
			m.Answer, m.Rcode = append(m.Answer, rr), dns.RcodeSuccess
		case name == "liar.test." && q.Qtype == dns.TypeA:
			rr, _ := dns.NewRR("other.test. 1 IN A 127.0.0.1")
			m.Answer, m.Rcode = append(m.Answer, rr), dns.RcodeSuccess
		case strings.HasSuffix(name, "another.test."):
			m.Question[0].Name = "elsewhere.test."
		}
	})
	for name, want := range map[string]string{
		"huge.test":    "does not hold",
		"loop.test":    "Add a TXT",
		"script.test":  "Add a TXT",
		"others.test":  "Add a TXT",
		"broken.test":  "are not responding",
		"refused.test": "are not responding",
		"silent.test":  "are not responding",
		"liar.test":    "Add a TXT",
		"another.test": "are not responding",
		"nothing.test": "Add a TXT",
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Now()
			d := h.verify(h.ann, h.add(h.ann, blog, name))
			if took := time.Since(at); took > time.Minute {
				t.Errorf("the check took %v", took)
			}
			if d.Status != "pending" || !strings.Contains(text(d.Verification[0].Reason), want) {
				t.Errorf("%s, %q", d.Status, text(d.Verification[0].Reason))
			}
			if a := h.do(h.ann, "GET", "/domains/"+d.ID, nil); len(a.Body) > 8000 {
				t.Errorf("%d bytes are kept", len(a.Body))
			}
		})
	}
	// The next check sees that a broken zone works again.
	h.zone.Restore()
	d := h.list(h.ann, "broken.test")
	h.prove(d)
	if d = h.verify(h.ann, d); d.Status != "active" {
		t.Errorf("restored: %s %q", d.Status, d.reason())
	}
	// A zone that stops answering doesn't deactivate the domain.
	h.zone.Fail("broken.test", dns.RcodeServerFailure)
	h.zone.Fail("_slipway.broken.test", dns.RcodeServerFailure)
	if d = h.verify(h.ann, d); d.Status != "active" || d.problem("no_answer") == "" {
		t.Errorf("silent: %s %+v", d.Status, d.Problems)
	}
	h.shows("broken.test", "hello")
	for name, tt := range map[string]struct{ records, code string }{
		"cdn.test":   {"A 104.16.1.1", "cdn"},
		"six.test":   {"A 127.0.0.1|AAAA 2001:db8::1", "ipv6_mismatch"},
		"wrong.test": {"A 198.51.100.7", "wrong_target"},
		"mixed.test": {"A 127.0.0.1|A 198.51.100.7", "mixed_addresses"},
		"caa.test":   {`A 127.0.0.1|CAA 0 issue "other.example"`, "caa"},
	} {
		h.zone.Set(name, strings.Split(tt.records, "|")...)
		if d := h.verify(h.ann, h.add(h.ann, blog, name)); d.problem(tt.code) == "" {
			t.Errorf("%s: %+v", name, d.Problems)
		}
	}
}

// A name's availability comes from its registry, from DNS if the registry can't be asked, and from the installation's
// own domains if DNS doesn't answer either. With --registry rdap, an unreachable registry is a 503.
func TestAvailability(t *testing.T) {
	t.Parallel()
	prices := filepath.Join(t.TempDir(), "prices.txt")
	if err := os.WriteFile(prices, []byte("# ours\nde 7 EUR\n* 99 USD\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	type result struct {
		Domain, Currency, Source string
		Available                bool
		Price                    int
	}
	ask := func(h *harness, name string) (result, int, string) {
		t.Helper()
		at := time.Now()
		a := h.do(h.ann, "POST", "/domains/check", map[string]any{"domain": name})
		if took := time.Since(at); took > time.Minute {
			t.Errorf("%s took %v", name, took)
		}
		var r result
		if err := json.Unmarshal(a.Body, &r); err != nil {
			t.Fatal(err)
		}
		return r, a.Status, a.Header.Get("Retry-After")
	}
	// Only the test's DNS server can be reached: suffixes have no known registry, or it is unreachable.
	h := newHarness(t, options{flags: []string{"--registry", "auto", "--prices", prices}})
	blog := h.live(h.ann, "blog", "hello")
	h.zone.Set("taken-4711.de", "NS ns.taken-4711.de.")
	h.zone.Fail("broken-4711.de", dns.RcodeServerFailure)
	h.zone.Silence("silent-4711.de")
	h.add(h.ann, blog, "www.ours-4711.de")
	h.add(h.ann, blog, "claimed-4711.de")
	h.active(h.ann, blog, "www.held-4711.de")
	for name, want := range map[string]result{
		"taken-4711.de":   {"taken-4711.de", "EUR", "dns", false, 7},
		"Free-4711.DE.":   {"free-4711.de", "EUR", "dns", true, 7},
		"broken-4711.de":  {"broken-4711.de", "EUR", "local", true, 7},
		"silent-4711.de":  {"silent-4711.de", "EUR", "local", true, 7},
		"claimed-4711.de": {"claimed-4711.de", "EUR", "local", false, 7},
		"held-4711.de":    {"held-4711.de", "EUR", "local", false, 7},
	} {
		if got, status, _ := ask(h, name); status != 200 || got != want {
			t.Errorf("%s: %d %+v, want %+v", name, status, got, want)
		}
	}
	strict := newHarness(t, options{flags: []string{"--registry", "rdap"}})
	strict.zone.Set("taken-4711.de", "NS ns.taken-4711.de.")
	if _, status, after := ask(strict, "taken-4711.de"); status != 503 || after == "" {
		t.Errorf("the registry alone: %d, Retry-After %q", status, after)
	}
}
