package domains

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The program is killed during an ACME order. After the next start it gets the certificate with one more order.
func TestKilledDuringAnOrder(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{life: time.Hour})
	blog := h.live(h.ann, "blog", "hello")
	stuck, release := make(chan struct{}, 1), make(chan struct{})
	for i, at := range []string{"/order-plz", "/chalZ/", "/finalize-order/"} {
		f := func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, at) {
				select {
				case stuck <- struct{}{}:
				default:
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			return false
		}
		h.ca.Between(f)
		name := string(rune('a'+i)) + ".customer.test"
		d := h.active(h.ann, blog, name)
		select {
		case <-stuck:
		case <-time.After(time.Minute):
			t.Fatalf("%s: no request came", at)
		}
		h.Kill()
		h.ca.Restore()
		close(release)
		release = make(chan struct{})
		before := h.ca.Orders.Load()
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.certified(h.ann, d)
		h.shows(name, "hello")
		// The interrupted order may already have been placed when the program was killed.
		if n := h.ca.Orders.Load() - before; n < 1 || n > 2 {
			t.Errorf("%s: %d orders after the restart", at, n)
		}
		select {
		case <-stuck:
		default:
		}
	}
}

// While the authority is down, sites with a certificate are still served, and visitors cause no requests to it.
func TestAuthorityDown(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{life: time.Hour})
	h.hear(h.ann, "/down")
	h.notify(h.ann, "slack", "/slack", "certificate.failed")
	blog := h.live(h.ann, "blog", "hello")
	h.certified(h.ann, h.active(h.ann, blog, "a.customer.test"))
	h.ca.Stop()
	d := h.active(h.ann, blog, "b.customer.test")
	h.until(30*time.Second, "a word about the certificate", func() bool { d = h.get(h.ann, d); return d.SSLStatus == "failed" })
	c := d.Certificate
	if !strings.Contains(text(c.LastError), "can't be reached") || c.NextAttemptAt == nil {
		t.Fatalf("said %+v", c)
	}
	if in := time.Until(*c.NextAttemptAt); in > 40*time.Second {
		t.Errorf("the next attempt is in %v", in)
	}
	h.heard("/down", "ssl.failed", "b.customer.test", 1)
	h.notified("/slack", `"text":"The certificate of b.customer.test could not be issued"`)
	requests := h.ca.Requests.Load()
	for range 20 {
		h.shows("a.customer.test", "hello")
		if _, err := h.shake("b.customer.test"); err == nil {
			t.Error("a handshake without a certificate succeeded")
		}
	}
	if n := h.ca.Requests.Load() - requests; n > 0 && time.Now().Before(*c.NextAttemptAt) {
		t.Errorf("visitors caused %d requests to the authority", n)
	}
	if err := h.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.shows("a.customer.test", "hello")
	h.ca.Restore()
	h.verify(h.ann, d)
	h.certified(h.ann, d)
	h.shows("b.customer.test", "hello")
}

// A second authority is used if the first one is down, but not if the name's DNS is the problem.
func TestAnotherAuthority(t *testing.T) {
	t.Parallel()
	h := newHarness(t, options{life: time.Hour, more: true})
	blog := h.live(h.ann, "blog", "hello")
	h.certified(h.ann, h.active(h.ann, blog, "a.customer.test"))
	if n := h.more.Orders.Load(); n != 0 {
		t.Errorf("%d orders at the second authority while the first is well", n)
	}
	h.shows("a.customer.test", "hello")
	h.ca.Stop()
	h.certified(h.ann, h.active(h.ann, blog, "b.customer.test"))
	if n := h.more.Orders.Load(); n != 1 {
		t.Errorf("%d orders at the second authority", n)
	}
	h.ca.Restore()
	// The name points here when it is added, but no longer when the authority checks it.
	h.zone.Tamper(func(q dns.Question, m *dns.Msg) {
		if strings.HasPrefix(q.Name, "c.customer.test") && h.ca.Orders.Load() > 1 {
			m.Answer, m.Rcode = nil, dns.RcodeNameError
		}
	})
	d := h.active(h.ann, blog, "c.customer.test")
	h.until(20*time.Second, "the refusal", func() bool { d = h.get(h.ann, d); return d.SSLStatus == "failed" })
	if n := h.more.Orders.Load(); n != 1 {
		t.Errorf("%d orders at the second authority for a name at fault", n)
	}
	if said := text(d.Certificate.LastError); !strings.Contains(said, "c.customer.test") {
		t.Errorf("said %q", said)
	}
}
