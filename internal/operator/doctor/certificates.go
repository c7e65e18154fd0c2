package doctor

import (
	"fmt"

	"slipway/internal/operator/config"
)

// Certificates holds the operator's settings of certificates.
type Certificates struct {
	SiteDomain string
	Public     bool // from an ACME authority: --acme-ca
	DNS        bool // challenges in the DNS are answered: --acme-dns
}

// check reports what visitors get.
func (c Certificates) check() Check {
	out := Check{Name: "certificates", OK: true}
	switch {
	case config.Local(c.SiteDomain):
		out.Text = fmt.Sprintf("of the local authority, as nobody else issues for names below %s", c.SiteDomain)
	case !c.Public:
		out.OK, out.Text = false, "of the local authority: browsers warn visitors of all sites who do not trust it. Set --acme-ca for public ones"
	case !c.DNS:
		out.OK, out.Text = false, config.NoWildcard
	default:
		out.Text = fmt.Sprintf("of an ACME authority, and *.%s for the addresses of sites and deployments", c.SiteDomain)
	}
	return out
}
