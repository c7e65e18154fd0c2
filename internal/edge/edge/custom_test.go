package edge

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"
	"testing"

	"slipway/internal/platform/db"
)

// claim writes a custom host's row as package domain does, and waits until it is served.
func (w *world) claim(host, site, to, state string) {
	w.t.Helper()
	want := w.version.Add(1)
	err := w.DB.Write(w.t.Context(), func(tx *db.Tx) error {
		tx.Notify("live")
		_, err := tx.Exec(w.t.Context(), `
			INSERT INTO custom_hosts VALUES ($1, $2, $3, $4, $5, 0)
			ON CONFLICT (host) DO UPDATE SET site_id = $2, redirect_to = $3, state = $4, version = $5`, host, site, to, state, want)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.until("the claim is in force", func() bool {
		c := w.table.hosts().claim(host)
		if state != claimActive {
			return c == nil || c.host != host
		}
		return c != nil && c.host == host && c.version >= want
	})
}

func TestCustomHosts(t *testing.T) {
	t.Parallel()
	w := start(t)
	port := w.https[strings.LastIndexByte(w.https, ':'):]
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "blog"}))
	w.live("s2", "shop", stateLive, w.publish(map[string]string{"index.html": "shop"}))
	shake := func(name string) error {
		c, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.roots, ServerName: name})
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := shake("www.customer.test"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("before the claim: %v", err)
	}
	w.claim("www.customer.test", "s1", "", "active")
	w.get("https://www.customer.test/").want(t, 200, "blog")
	w.get("https://WWW.customer.test./").want(t, 200, "blog")
	w.get("http://www.customer.test/a?b").want(t, 308, "").head(t, "Location", "https://www.customer.test"+port+"/a?b")
	// A claim for one name covers no other name.
	for _, name := range []string{"customer.test", "a.www.customer.test", "ww.customer.test"} {
		if err := shake(name); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want unrecognized_name", name, err)
		}
		w.get("http://"+name+"/").want(t, 404, "Site not found")
	}

	// The apex redirects every method to www and keeps path and query.
	w.claim("customer.test", "s1", "www.customer.test", "active")
	for _, scheme := range []string{"https", "http"} {
		w.get(scheme+"://customer.test/a%2Fb/?q=1&r=%20").want(t, 308, "").head(t, "Location",
			"https://www.customer.test"+port+"/a%2Fb/?q=1&r=%20")
	}
	w.get("https://customer.test//evil.test/").want(t, 308, "").head(t, "Location", "https://www.customer.test"+port+"//evil.test/")
	w.do("POST", "https://customer.test/form").want(t, 308, "")
	w.claim("old.customer.test", "s1", "elsewhere.example", "active")
	w.get("https://old.customer.test/x").want(t, 308, "").head(t, "Location", "https://elsewhere.example/x")

	// A wildcard matches one label, and an exact name takes precedence.
	w.claim("*.customer.test", "s2", "", "active")
	w.get("https://any.customer.test/").want(t, 200, "shop")
	w.get("https://www.customer.test/").want(t, 200, "blog")
	for _, name := range []string{"a.b.customer.test", "*.customer.test"} {
		if name[0] != '*' && shake(name) == nil {
			t.Errorf("%s has a certificate", name)
		}
	}
	first, err := w.certificateOf("any.customer.test")
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.certificateOf("other.customer.test")
	if err != nil || !bytes.Equal(first.Certificate[0], second.Certificate[0]) {
		t.Errorf("a wildcard has several certificates, %v", err)
	}
	if leaf, err := x509.ParseCertificate(first.Certificate[0]); err != nil || leaf.DNSNames[0] != "*.customer.test" {
		t.Errorf("a wildcard's certificate is %v, %v", leaf, err)
	}

	// A custom host follows the state of its site.
	w.live("s1", "blog", stateStopped, "")
	w.get("https://www.customer.test/").want(t, 503, "is offline")
	w.get("https://customer.test/").want(t, 503, "is offline")
	w.live("s1", "journal", stateEmpty, "") // the site's label has changed too
	w.get("https://www.customer.test/").want(t, 503, "being deployed")
	w.live("s1", "journal", stateDeleted, "")
	w.get("https://www.customer.test/").want(t, 404, "Site not found")

	// A name can move to another site and can be given up.
	w.claim("www.customer.test", "s2", "", "active")
	w.get("https://www.customer.test/").want(t, 200, "shop")
	w.claim("www.customer.test", "s2", "", "deleted")
	w.get("https://www.customer.test/").want(t, 200, "shop") // matched by the wildcard
	w.claim("*.customer.test", "s2", "", "deleted")
	if err := shake("www.customer.test"); err == nil || !strings.Contains(err.Error(), "unrecognized name") {
		t.Errorf("after the claim: %v", err)
	}
	w.get("http://www.customer.test/").want(t, 404, "Site not found")

	// Claims don't override the installation's own names.
	w.claim("panel.test", "s2", "", "active")
	w.claim("blog.sites.test", "s2", "", "active")
	w.get("https://panel.test/").want(t, 200, "control plane")
	w.get("https://blog.sites.test/").want(t, 404, "Site not found")
}

type hostSet map[string]bool

func (s hostSet) Has(host string) bool { return s[host] }

// Hosts that the control plane adds at runtime belong to the control plane even if a site claims them. Other hosts
// don't.
func TestMoreControlHosts(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.MoreControl = hostSet{"panel.harbor.test": true} })
	w.live("s2", "shop", stateLive, w.publish(map[string]string{"index.html": "shop"}))
	w.claim("*.harbor.test", "s2", "", "active")
	w.claim("panel.harbor.test", "s2", "", "active")
	w.get("https://panel.harbor.test/").want(t, 200, "control plane")
	w.get("https://www.harbor.test/").want(t, 200, "shop")
	if to := w.get("http://panel.harbor.test/sign-in").header.Get("Location"); !strings.HasPrefix(to, "https://panel.harbor.test") {
		t.Errorf("plain HTTP leads to %q", to)
	}
}

func (w *world) certificateOf(name string) (*tls.Certificate, error) {
	return w.certificate(&tls.ClientHelloInfo{ServerName: name})
}

// A claim whose row vanished from the view is dropped when all rows are read again.
func TestVanishedClaim(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.claim("a.test", "s1", "", "active")
	w.claim("b.test", "s1", "", "active")
	if err := w.DB.Admin(t.Context(), "DELETE FROM custom_hosts WHERE host = 'a.test'"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.readBoth(t.Context(), 1,
		0); err != nil || w.table.hosts().claim("a.test") != nil || w.table.hosts().claim("b.test") == nil {
		t.Errorf("a vanished claim is still served, %v", err)
	}
	w.table.change(func(c *changes) {
		c.claims([]*claim{{host: "b.test", site: "s0", state: claimActive, version: 1}}, 1)
	})
	if w.table.hosts().claim("b.test").site != "s1" {
		t.Error("an older row won")
	}
}

// Plain listeners answer the challenges of this installation's orders, and no others.
func TestChallenges(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) {
		c.Certificates = certificates{c.Certificates.(certificates).answer, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != challengePath+"ours" {
				return false
			}
			io.WriteString(w, "ours.thumb")
			return true
		}}
	})
	w.live("s1", "blog", stateLive, w.publish(map[string]string{"index.html": "blog", ".well-known/acme-challenge/theirs": "theirs.thumb"}))
	w.claim("www.customer.test", "s1", "", "active")
	w.get("http://www.customer.test"+challengePath+"ours").want(t, 200, "ours.thumb")
	w.get("http://www.customer.test"+challengePath+"theirs").want(t, 200, "theirs.thumb")
	w.get("http://blog.sites.test"+challengePath+"theirs").want(t, 200, "theirs.thumb")
	w.get("http://www.customer.test"+challengePath+"x").want(t, 404, "no page")
	w.get("http://panel.test"+challengePath+"x").want(t, 404, "no page")
	w.get("http://evil.test"+challengePath+"x").want(t, 404, "Site not found")
	w.get("https://www.customer.test"+challengePath+"ours").want(t, 404, "no page")
}
