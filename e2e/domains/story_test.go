package domains

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"slipway/e2e/world"
)

// The life of a custom domain: it is added, shows which records are missing, is verified, gets a certificate, is served
// and renewed; the authority refuses a renewal, the certificate expires, it is repaired, and the domain is removed.
func TestStory(t *testing.T) {
	t.Parallel()
	// Long enough that even a busy machine can issue and renew a certificate before it expires.
	life := min(21*time.Second, world.Patience(14*time.Second)).Round(time.Second)
	h := newHarness(t, options{life: life})
	h.hear(h.ann, "/story")
	blog := h.live(h.ann, "blog", "hello")
	const name = "www.customer.test"

	// The missing records are shown immediately.
	d := h.add(h.ann, blog, name)
	if d.Status != "pending" || d.SSLStatus != "pending" || d.SiteID != blog.ID || !strings.Contains(
		d.reason(),
		"Waiting for verification",
	) {
		t.Errorf("at first: %+v", d)
	}
	txt := d.Verification[0]
	if txt.Type != "TXT" || txt.Name != "_slipway."+name || !strings.HasPrefix(
		txt.Value,
		"slipway-",
	) || txt.Status != "pending" || len(txt.Current) != 0 {
		t.Errorf("proof: %+v", txt)
	}
	if alias := d.Verification[1]; alias.Type != "CNAME" || alias.Name != name || alias.Value != blog.host() {
		t.Errorf("the other proof: %+v", alias)
	}
	if len(d.DNS) != 1 || d.DNS[0].Type != "CNAME" || d.DNS[0].Value != blog.host() || d.DNS[0].Status != "pending" {
		t.Errorf("where it must point: %+v", d.DNS)
	}
	h.heard("/story", "domain.added", name, 1)

	// An address record that points here doesn't verify the domain, and a wrong TXT value is shown beside the expected
	// one.
	h.zone.Set(name, "A 127.0.0.1")
	h.zone.Set(txt.Name, `TXT "something else"`)
	if d = h.verify(
		h.ann,
		d,
	); d.Status != "pending" || d.Verification[0].Status != "invalid" || !slices.Equal(d.Verification[0].Current, []string{"something else"}) ||
		d.DNS[0].Status != "valid" || !slices.Equal(d.DNS[0].Current, []string{"127.0.0.1"}) {
		t.Errorf("without proof: %+v", d)
	}
	if !h.strange(name) || h.ca.Orders.Load() != 0 {
		t.Errorf("before the proof: %d orders", h.ca.Orders.Load())
	}

	// After verification, the domain is active and gets a certificate before the first visit.
	h.zone.Set(txt.Name, `TXT "`+txt.Value+`"`)
	if d = h.verify(h.ann, d); d.Status != "active" || d.StatusReason != nil || d.Verification[0].Status != "valid" || d.CheckedAt == nil {
		t.Fatalf("with the proof: %+v", d)
	}
	h.heard("/story", "domain.verified", name, 1)
	d = h.certified(h.ann, d)
	c := d.Certificate
	if !strings.Contains(text(c.Issuer), "Pebble") || c.LastError != nil || c.ExpiresAt == nil || c.NextAttemptAt == nil {
		t.Fatalf("certificate %+v", c)
	}
	if left := c.ExpiresAt.Sub(*c.NextAttemptAt); left < life/3-time.Second || left > life/3+2*time.Second {
		t.Errorf("renewal with %v of %v left", left, life)
	}
	h.shows(name, "hello")
	h.heard("/story", "ssl.issued", name, 1)
	var s aSite
	h.call(h.ann, "GET", "/sites/"+blog.ID, nil, &s)
	if len(s.Domains) != 1 || s.Domains[0].Name != name || s.Domains[0].Status != "active" {
		t.Errorf("the site shows %+v", s.Domains)
	}

	// The certificate is renewed automatically.
	first, err := h.shake(name)
	if err != nil {
		t.Fatal(err)
	}
	h.heard("/story", "ssl.renewed", name, 1)
	h.until(5*time.Second, "the new certificate", func() bool { leaf, err := h.shake(name); return err == nil && !leaf.Equal(first) })
	if now := h.get(h.ann, d); !now.Certificate.ExpiresAt.After(*c.ExpiresAt) || now.SSLStatus != "active" {
		t.Errorf("after the renewal: %+v", now.Certificate)
	}

	// The authority refuses a renewal: the error and the time of the next attempt are shown, and the current
	// certificate is still used.
	refused := time.Now()
	h.ca.Refuse(403, "rejectedIdentifier", "policy forbids it")
	h.heard("/story", "ssl.failed", name, 1)
	d = h.get(h.ann, d)
	if d.SSLStatus != "active" || !strings.Contains(
		text(d.Certificate.LastError),
		"policy forbids it",
	) || d.Certificate.NextAttemptAt == nil || d.Certificate.NextAttemptAt.Sub(refused) < time.Second {
		t.Errorf("refused: %s %+v", d.SSLStatus, d.Certificate)
	}
	h.shows(name, "hello")

	// The certificate expires.
	h.until(20*time.Second, "the end of the certificate", func() bool { d = h.get(h.ann, d); return d.SSLStatus == "expired" })
	if d.Status != "active" || d.Certificate.LastError == nil {
		t.Errorf("ended: %+v", d)
	}

	// After the repair, a manual check gets a certificate without waiting for the next attempt.
	h.ca.Restore()
	h.verify(h.ann, d)
	if d = h.certified(h.ann, d); d.Certificate.LastError != nil {
		t.Errorf("put right: %+v", d.Certificate)
	}
	h.shows(name, "hello")

	// A removed domain isn't served and isn't in the API. If its owner adds it again, it has its old certificate, or
	// gets a new one if that has expired.
	h.call(h.ann, "DELETE", "/domains/"+d.ID, nil, nil)
	h.until(5*time.Second, "the end of the route", func() bool { return h.strange(name) })
	if a := h.do(h.ann, "GET", "/domains/"+d.ID, nil); a.Status != 404 {
		t.Errorf("after its removal: %d %s", a.Status, a.Body)
	}
	d = h.certified(h.ann, h.active(h.ann, blog, name))
	h.shows(name, "hello")

	// Moving a domain to another site doesn't interrupt it.
	shop := h.live(h.ann, "shop", "wares")
	var moved aDomain
	h.call(h.ann, "PATCH", "/domains/"+d.ID, map[string]any{"siteId": shop.ID}, &moved)
	if moved.Status != "active" {
		t.Errorf("moved: %+v", moved)
	}
	h.until(10*time.Second, "the other site", func() bool {
		_, body, _, err := h.fetch(name, "/")
		if err != nil || !strings.Contains(body, "hello") && !strings.Contains(body, "wares") {
			t.Errorf("while it moved: %q, %v", body, err)
		}
		return strings.Contains(body, "wares")
	})
}

// www redirects to the apex, or the other way round, and keeps path and query. Redirect loops are rejected.
func TestRedirects(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{})
	blog := h.live(h.ann, "blog", "hello")
	apex := h.active(h.ann, blog, "example.com")
	if !apex.Primary || len(apex.DNS) != 1 || apex.DNS[0].Type != "A" || apex.DNS[0].Value != "127.0.0.1" || apex.DNS[0].Status != "valid" {
		t.Errorf("an apex: %+v", apex)
	}
	// A CDN that connects over plain HTTP causes a redirect loop for visitors, and the domain warns of that.
	shop := h.add(h.ann, blog, "shop.customer.test")
	h.prove(shop)
	h.zone.Set(shop.Name, "A 104.16.1.1")
	shop = h.verify(h.ann, shop)
	if said := shop.problem("cdn"); shop.Status != "active" || !strings.Contains(
		said,
		"SSL mode Full",
	) || !strings.Contains(said, "Flexible") || !strings.Contains(said, "ERR_TOO_MANY_REDIRECTS") {
		t.Errorf("%s behind a CDN: %+v", shop.Status, shop.Problems)
	}
	h.until(5*time.Second, "the same address again", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+h.HTTP+"/page?x=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = shop.Name
		r.Header.Set("X-Forwarded-Proto", "https")
		a, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return false
		}
		a.Body.Close()
		to, err := a.Location()
		return err == nil && a.StatusCode/100 == 3 && to.Scheme == "https" && to.Hostname() == shop.Name && to.RequestURI() == "/page?x=1"
	})
	var www aDomain
	h.call(h.ann, "POST", "/sites/"+blog.ID+"/domains", map[string]any{"name": "www.example.com", "redirectTo": "example.com"}, &www)
	h.prove(www)
	if www = h.verify(h.ann, www); www.Status != "active" || text(www.RedirectTo) != "example.com" || www.Primary {
		t.Fatalf("got %+v", www)
	}
	h.shows("example.com", "hello")
	h.until(5*time.Second, "the redirect", func() bool { s, _, _, err := h.fetch("www.example.com", "/"); return err == nil && s/100 == 3 })
	status, _, location, err := h.fetch("www.example.com", "/deep/page?x=1&y=%20")
	if err != nil || status != 308 && status != 301 || !strings.HasPrefix(
		location,
		"https://example.com",
	) || !strings.HasSuffix(location, "/deep/page?x=1&y=%20") {
		t.Errorf("%d %q %v", status, location, err)
	}
	for _, tt := range []struct {
		d    aDomain
		body map[string]any
	}{
		{apex, map[string]any{"redirectTo": "www.example.com"}},
		{apex, map[string]any{"redirectTo": "example.com"}},
		{apex, map[string]any{"redirectTo": "EXAMPLE.com."}},
		{apex, map[string]any{"redirectTo": "https://evil.test/"}},
		{apex, map[string]any{"redirectTo": "evil test"}},
		{www, map[string]any{"primary": true}},
	} {
		if a := h.do(h.ann, "PATCH", "/domains/"+tt.d.ID, tt.body); a.Status != 400 {
			t.Errorf("%s %v: %d %s", tt.d.Name, tt.body, a.Status, a.Body)
		}
	}
	h.call(h.ann, "PATCH", "/domains/"+www.ID, map[string]any{"redirectTo": ""}, &www)
	h.shows("www.example.com", "hello")
	h.call(h.ann, "PATCH", "/domains/"+apex.ID, map[string]any{"redirectTo": "www.example.com"}, nil)
	h.until(5*time.Second, "the redirect", func() bool {
		s, _, l, err := h.fetch("example.com", "/")
		return err == nil && s/100 == 3 && strings.HasPrefix(l, "https://www.example.com")
	})
}
