package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/fastpath"
)

// protocolProof is the ALPN protocol of tls-alpn-01 challenges (RFC 8737).
const protocolProof = "acme-tls/1"

// TLSConfig returns the configuration for HTTPS listeners: TLS 1.2 or newer, HTTP/2, HTTP/1.1 and HTTP/1.0, with the
// certificate chosen by name. Unknown names get the alert unrecognized_name (RFC 6066 §3).
func (e *Edge) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1", "http/1.0", protocolProof},
		GetConfigForClient: e.reserve,
		GetCertificate:     e.certificate,
	}
}

// certificate calls [Config.Certificates]. If it returns nil, crypto/tls sends the alert.
func (e *Edge) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if e.Certificates == nil {
		return nil, nil
	}
	host := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if host == "" && hello.Conn != nil { // clients send no SNI for IP addresses
		if a, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			host = a.IP.String()
		}
	}
	name, known := e.certificateName(host)
	return e.Certificates.Certificate(hello, name, known)
}

// certificateName returns the name to certify for a host, or "" for an unknown host. known reports whether the host is
// permanent: the control plane, an existing site, or a custom host. A custom host uses the certificate of its route, so
// a wildcard needs only one.
//
// Every label below the site domain has a name, so that unknown ones get an error page. Addresses of single deployments
// aren't known: there are more of them than public authorities issue certificates for.
func (e *Edge) certificateName(host string) (name string, known bool) {
	if e.isControl(host) {
		return host, true
	}
	if label, ok := e.label(host); ok {
		return host, e.table.hosts().find(label) != nil
	}
	if c := e.table.hosts().claim(host); c != nil {
		return c.host, true
	}
	return "", false
}

// label returns the label of a name directly below the site domain.
func (e *Edge) label(name string) (string, bool) {
	label, ok := strings.CutSuffix(name, "."+e.SiteDomain)
	if !ok || label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", false
	}
	return label, true
}

// The servers' listeners limit connections (package connlimit): idle ones are closed for new ones, and the last places
// are reserved for the control plane.

var errNoPlace = errors.New("the last connections are reserved for the control plane")

// reserve ends a handshake on a reserved place unless it is for the control plane.
func (e *Edge) reserve(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*connlimit.Conn); ok && c.Spare() && !e.isControl(fastpath.Hostname(hello.ServerName)) {
		return nil, errNoPlace
	}
	return nil, nil
}
