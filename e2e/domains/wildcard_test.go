package domains

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"slipway/internal/tenant/domain/dnstest"
)

// A wildcard gets a certificate through the program's own name server, after its owner has set one CNAME record; the
// sites' shared certificate works the same way. Requests for unverified names cause no order.
func TestWildcardsAndStrangers(t *testing.T) {
	t.Parallel()
	packets, stream := dnstest.BothPorts(t)
	server := stream.Addr().String()
	packets.Close()
	stream.Close()
	h := newHarness(t, options{life: time.Hour, flags: []string{"--acme-dns", server, "--acme-dns-zone", "acme.test"}})
	h.zone.Delegate("acme.test", server)
	blog := h.live(h.ann, "blog", "hello")

	// Until the record for the site domain exists, each site has its own certificate.
	leaf, err := h.shake(blog.host())
	if err != nil || leaf.DNSNames[0] != blog.host() {
		t.Fatalf("the site's own address: %v", err)
	}
	found := regexp.MustCompile(`_acme-challenge\.sites\.test\. CNAME ([a-z2-7]{24}\.acme\.test)\.`).FindStringSubmatch(h.Log(1 << 20))
	if found == nil {
		t.Fatal("the log does not name the DNS record of the site domain")
	}

	d := h.add(h.ann, blog, "*.shop.test")
	challenge := d.DNS[len(d.DNS)-1]
	if len(d.Verification) != 1 || challenge.Type != "CNAME" || challenge.Name != "_acme-challenge.shop.test" || !strings.HasSuffix(
		challenge.Value,
		".acme.test",
	) || challenge.Status != "pending" ||
		!strings.Contains(d.problem("challenge"), challenge.Value) {
		t.Errorf("at first: %+v", d)
	}
	h.prove(d)
	if d = h.verify(h.ann, d); d.Status != "active" {
		t.Fatalf("proven: %+v", d)
	}
	if said := d.problem("challenge"); !strings.Contains(
		said,
		challenge.Name,
	) || !strings.Contains(said, challenge.Value) || d.SSLStatus != "pending" {
		t.Errorf("the error does not name the missing record: %s, %q", d.SSLStatus, said)
	}
	if _, err := h.shake("any.shop.test"); err == nil {
		t.Error("a handshake without a certificate succeeded")
	}
	h.zone.Set(challenge.Name, "CNAME "+challenge.Value+".")
	d = h.certified(h.ann, h.verify(h.ann, d))
	if d.DNS[len(d.DNS)-1].Status != "valid" || len(d.Problems) != 0 {
		t.Errorf("with the record: %+v", d)
	}
	h.shows("any.shop.test", "hello")
	if leaf, err := h.shake("other.shop.test"); err != nil || leaf.DNSNames[0] != "*.shop.test" {
		t.Errorf("%v", err)
	}

	// A single name below the wildcard has its own certificate.
	h.certified(h.ann, h.active(h.ann, blog, "pay.shop.test"))
	if leaf, err := h.shake("pay.shop.test"); err != nil || leaf.DNSNames[0] != "pay.shop.test" {
		t.Errorf("%v", err)
	}

	// Visitors request a thousand made-up names.
	orders := h.ca.Orders.Load()
	for i := range 1000 {
		label := strings.ToLower(rand.Text())
		name := []string{
			label + ".sites.test",
			label + ".test",
			label + ".customer.test",
			"a." + label + ".shop.test",
			"shop.test",
			label + ".pay.shop.test",
			label + "." + blog.host(),
		}[i%7]
		protocols := [][]string{nil, {"acme-tls/1"}, {"h2"}}[i%3]
		if !h.strange(name, protocols...) {
			_, err := h.shake(name, protocols...)
			t.Fatalf("%s %v: %v, want the alert unrecognized_name", name, protocols, err)
		}
	}
	if n := h.ca.Orders.Load() - orders; n != 0 {
		t.Errorf("%d orders", n)
	}

	h.call(h.ann, "DELETE", "/domains/"+d.ID, nil, nil)
	h.until(5*time.Second, "the end of the wildcard", func() bool { return h.strange("any.shop.test") })
	h.shows("pay.shop.test", "hello")

	// If a port of the name server is in use, the start fails with one line and creates no data directory.
	data := filepath.Join(t.TempDir(), "data")
	free, l := dnstest.BothPorts(t)
	l.Close() // free for TCP, taken for UDP
	defer free.Close()
	for _, busy := range []string{server, free.LocalAddr().String()} {
		cmd := exec.Command(
			h.Binary, "serve", "--data-dir", data, "--listen", "127.0.0.1:0", "--edge-http", "127.0.0.1:0",
			"--edge-https", "127.0.0.1:0", "--site-domain", "sites.test", "--acme-ca",
			h.ca.Directory(),
			"--acme-dns",
			busy,
			"--acme-dns-zone",
			"acme.test",
		)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--acme-dns") || strings.Count(string(out), "\n") != 1 {
			t.Errorf("a busy port: %v %q", err, out)
		}
		if _, err := os.Stat(data); err == nil {
			t.Error("the data directory was created")
		}
	}

	// If the record for the site domain exists at the start, all sites share one certificate.
	if err := h.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	h.zone.Set("_acme-challenge.sites.test", "CNAME "+found[1]+".")
	h.Data = filepath.Join(t.TempDir(), "data")
	h.ann = h.user("ann@example.test")
	orders = h.ca.Orders.Load()
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.until(20*time.Second, "the sites' certificate", func() bool {
		leaf, err := h.shake("whatever.sites.test")
		return err == nil && leaf.DNSNames[0] == "*.sites.test"
	})
	h.shows(h.live(h.ann, "shared", "shared").host(), "shared")
	if n := h.ca.Orders.Load() - orders; n != 1 {
		t.Errorf("%d orders", n)
	}
}

// Without the program's name server, wildcards report that they need it, and single names still work.
func TestWildcardsWithoutDNS(t *testing.T) {
	t.Parallel()
	const key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	h := newHarness(t, options{life: time.Hour, key: key})
	blog := h.live(h.ann, "blog", "hello")
	d := h.add(h.ann, blog, "*.shop.test")
	if d.problem("no_wildcards") == "" {
		t.Errorf("at first: %+v", d)
	}
	h.prove(d)
	h.verify(h.ann, d)
	h.until(20*time.Second, "a word about the certificate", func() bool { d = h.get(h.ann, d); return d.SSLStatus == "failed" })
	if !strings.Contains(text(d.Certificate.LastError), "one by one") {
		t.Errorf("said %q", text(d.Certificate.LastError))
	}
	h.certified(h.ann, h.active(h.ann, blog, "a.shop.test"))
	h.shows("a.shop.test", "hello")
	// No file contains the authority's account key or an unencrypted private key.
	err := filepath.WalkDir(h.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || strings.Contains(path, "receiver") {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("PRIVATE KEY")) || bytes.Contains(b, []byte(key)) {
			t.Errorf("a key lies open in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}

	// CAA records are compared with the authority's own CAA identity.
	h.zone.Set("shop.test", `CAA 0 issue "other.example"`)
	if d := h.verify(h.ann, h.add(h.ann, blog, "b.shop.test")); !strings.Contains(d.problem("caa"), "pebble.test") {
		t.Errorf("CAA: %+v", d.Problems)
	}
	h.zone.Set("shop.test", `CAA 0 issue "pebble.test"`)
	if d := h.verify(h.ann, h.add(h.ann, blog, "c.shop.test")); d.problem("caa") != "" {
		t.Errorf("CAA: %+v", d.Problems)
	}
	// With the local authority, wildcards need no additional record.
	local := newHarness(t, options{})
	site := local.live(local.ann, "blog", "hello")
	w := local.active(local.ann, site, "*.shop.test")
	if len(w.Problems) != 0 || len(w.DNS) != 1 {
		t.Errorf("got %+v", w)
	}
	local.shows("any.shop.test", "hello")
	local.certified(local.ann, w)
	if !local.strange(fmt.Sprintf("a.b.%s", "shop.test")) || !local.strange("shop.test") {
		t.Error("the wildcard serves a name with two labels or none")
	}
}
