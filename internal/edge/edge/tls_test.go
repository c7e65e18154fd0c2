package edge

import (
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func TestCertificates(t *testing.T) {
	t.Parallel()
	w := start(t, func(c *Config) { c.ControlHosts = append(c.ControlHosts, "127.0.0.1") })
	shake := func(name string, change ...func(*tls.Config)) (*tls.ConnectionState, error) {
		c := &tls.Config{RootCAs: w.roots, ServerName: name, NextProtos: []string{"h2"}}
		for _, f := range change {
			f(c)
		}
		conn, err := tls.Dial("tcp", w.https, c)
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		state := conn.ConnectionState()
		return &state, nil
	}
	for _, name := range []string{"blog.sites.test", "unknown.sites.test", "abcdefghijk1--blog.sites.test", "panel.test", "127.0.0.1"} {
		s, err := shake(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		leaf := s.PeerCertificates[0]
		if err := leaf.VerifyHostname(name); err != nil || len(leaf.DNSNames)+len(leaf.IPAddresses) != 1 || leaf.IsCA {
			t.Errorf("%s: names %v %v, %v", name, leaf.DNSNames, leaf.IPAddresses, err)
		}
		if life := leaf.NotAfter.Sub(leaf.NotBefore); life > 398*24*time.Hour {
			t.Errorf("%s: lives for %v, browsers refuse that", name, life)
		}
		if s.NegotiatedProtocol != "h2" {
			t.Errorf("%s: protocol %q", name, s.NegotiatedProtocol)
		}
		again, err := shake(name)
		if err != nil || !again.PeerCertificates[0].Equal(leaf) {
			t.Errorf("%s: another certificate the second time, %v", name, err)
		}
	}
	for _, name := range []string{
		"evil.test", "sites.test", "a.b.sites.test", "xsites.test", "a_b.sites.test",
		strings.Repeat("a", 64) + ".sites.test",
	} {
		_, err := shake(name)
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want the alert unrecognized_name", name, err)
		}
	}
	if _, err := shake("blog.sites.test", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS11; c.MinVersion = tls.VersionTLS10 }); err == nil {
		t.Error("TLS 1.1 was accepted")
	}

	// A client that speaks only HTTP/1.0 says so in the handshake.
	conn, err := tls.Dial("tcp", w.https, &tls.Config{RootCAs: w.roots, ServerName: "panel.test", NextProtos: []string{"http/1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprint(conn, "GET / HTTP/1.0\r\nHost: panel.test\r\n\r\n")
	if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200 OK\r\n") ||
		!strings.HasSuffix(string(text), "control plane") {
		t.Errorf("HTTP/1.0: %q, %v", text, err)
	}
}

// The edge calls Config.Certificate with a host's name and whether it is known, and serves the certificate that it
// returns.
func TestCertificateNames(t *testing.T) {
	t.Parallel()
	type asked struct {
		name  string
		known bool
	}
	w := start(t)
	w.live("s1", "blog", stateEmpty, "")
	w.claim("*.customer.test", "s1", "", "active")
	for host, want := range map[string]asked{
		"blog.sites.test":               {"blog.sites.test", true},
		"unknown.sites.test":            {"unknown.sites.test", false},
		"panel.test":                    {"panel.test", true},
		"abcdefghijk1--blog.sites.test": {"abcdefghijk1--blog.sites.test", false},
		"any.customer.test":             {"*.customer.test", true},
		"evil.test":                     {},
		"sites.test":                    {},
	} {
		if name, known := w.certificateName(host); name != want.name || known != want.known {
			t.Errorf("%s: %q, known %v, want %+v", host, name, known, want)
		}
	}
	for what, answer := range map[string]Certificates{
		"none":  certificates{answer: func(*tls.ClientHelloInfo, string, bool) (*tls.Certificate, error) { return nil, nil }},
		"unset": nil,
	} {
		w := start(t, func(c *Config) { c.Certificates = answer })
		w.live("s1", "blog", stateEmpty, "")
		c, err := tls.Dial("tcp", w.https, &tls.Config{ServerName: "blog.sites.test", InsecureSkipVerify: true})
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "unrecognized name") {
			t.Errorf("%s: %v, want the alert unrecognized_name", what, err)
		}
	}
}
