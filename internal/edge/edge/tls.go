package edge

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"

	"slipway/internal/edge/connlimit"
	"slipway/internal/edge/fastpath"
)

// protocolProof is the protocol by which an authority asks for a proof in a handshake
// (RFC 8737).
const protocolProof = "acme-tls/1"

// TLSConfig returns the configuration for HTTPS listeners: TLS 1.2 or newer, HTTP/2,
// HTTP/1.1 and HTTP/1.0, a certificate by name. A name that is not ours ends in the alert
// unrecognized_name (RFC 6066, section 3).
func (e *Edge) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1", "http/1.0", protocolProof},
		GetConfigForClient: e.reserve,
		GetCertificate:     e.certificate,
	}
}

// certificate asks Config.Certificate. Returning nothing makes crypto/tls send the alert.
func (e *Edge) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if e.Certificates == nil {
		return nil, nil
	}
	host := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if host == "" && hello.Conn != nil { // an address instead of a name has no SNI
		if a, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			host = a.IP.String()
		}
	}
	name, known := e.certificateName(host)
	return e.Certificates.Certificate(hello, name, known)
}

// certificateName returns the name that a certificate for a host is made out to, or
// nothing for a host that is not ours. known reports whether the host is one that stays:
// the control plane, a site that exists, a custom host. A custom host has the certificate
// of its route, so a wildcard needs one only.
//
// Any label below the site domain has a name, so that unknown ones can be answered with a
// page that says so. The addresses of single deployments are not known: there are more of
// them than public authorities issue for.
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

// label returns the one label of a name below the site domain.
func (e *Edge) label(name string) (string, bool) {
	label, ok := strings.CutSuffix(name, "."+e.SiteDomain)
	if !ok || label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return "", false
	}
	return label, true
}

// Places are limited by the listeners that the servers get (package connlimit): what is
// idle closes connections to admit new ones, and the last slots are for the control plane alone.

var errNoPlace = errors.New("the last connections are reserved for the control plane")

// reserve ends a handshake on one of the last places unless it is for the control plane.
func (e *Edge) reserve(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if c, ok := hello.Conn.(*connlimit.Conn); ok && c.Spare() && !e.isControl(fastpath.Hostname(hello.ServerName)) {
		return nil, errNoPlace
	}
	return nil, nil
}
