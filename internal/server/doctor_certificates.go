package server

import "fmt"

// Certificates holds the operator's settings of certificates.
type Certificates struct {
	SiteDomain string
	Public     bool // from an ACME authority: --acme-ca
	DNS        bool // challenges in the DNS are answered: --acme-dns
}

// noWildcard is the warning of an installation that orders from an ACME authority and
// answers no challenges in the DNS.
const noWildcard = "--acme-ca without --acme-dns: the addresses of single deployments and previews get no certificate, because none but a trusted one is served; " +
	"every site's own address needs one of its own, and authorities issue about 50 new ones a week in a domain. Set --acme-dns and --acme-dns-zone for a wildcard"

// check reports what visitors get.
func (c Certificates) check() check {
	out := check{name: "certificates", ok: true}
	switch {
	case local(c.SiteDomain):
		out.text = fmt.Sprintf("of the local authority, as nobody else issues for names below %s", c.SiteDomain)
	case !c.Public:
		out.ok, out.text = false, "of the local authority: browsers warn visitors of all sites who do not trust it. Set --acme-ca for public ones"
	case !c.DNS:
		out.ok, out.text = false, noWildcard
	default:
		out.text = fmt.Sprintf("of an ACME authority, and *.%s for the addresses of sites and deployments", c.SiteDomain)
	}
	return out
}

// local reports whether names below a site domain lead to this very machine for everybody.
func local(domain string) bool {
	return domain == "" || domain == "localhost" || len(domain) > len(".localhost") && domain[len(domain)-len(".localhost"):] == ".localhost"
}
