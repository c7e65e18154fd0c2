package domain

import (
	"net"
	"net/netip"
	"strings"
)

// cdns holds the published address ranges of CDNs. Such an address says nothing about the origin server.
var cdns = map[string][]netip.Prefix{
	"Cloudflare": prefixes(`173.245.48.0/20 103.21.244.0/22 103.22.200.0/22 103.31.4.0/22 141.101.64.0/18
		108.162.192.0/18 190.93.240.0/20 188.114.96.0/20 197.234.240.0/22 198.41.128.0/17 162.158.0.0/15
		104.16.0.0/13 104.24.0.0/14 172.64.0.0/13 131.0.72.0/22 2400:cb00::/32 2606:4700::/32 2803:f800::/32
		2405:b500::/32 2405:8100::/32 2a06:98c0::/29 2c0f:f248::/32`),
	"Fastly": prefixes(`23.235.32.0/20 43.249.72.0/22 103.244.50.0/24 103.245.222.0/23 103.245.224.0/24
		104.156.80.0/20 140.248.64.0/18 140.248.128.0/17 146.75.0.0/17 151.101.0.0/16 157.52.64.0/18
		167.82.0.0/17 167.82.128.0/20 167.82.160.0/20 167.82.224.0/20 172.111.64.0/18 185.31.16.0/22
		199.27.72.0/21 199.232.0.0/16 2a04:4e40::/32 2a04:4e42::/32`),
}

// cdnNames holds the suffixes of CDNs' host names.
var cdnNames = map[string]string{
	"cdn.cloudflare.net": "Cloudflare", "cloudfront.net": "CloudFront", "fastly.net": "Fastly", "edgekey.net": "Akamai",
	"edgesuite.net": "Akamai", "akamaiedge.net": "Akamai", "azureedge.net": "Azure", "azurefd.net": "Azure", "b-cdn.net": "bunny.net",
	"cdn77.org": "CDN77", "incapdns.net": "Imperva",
}

func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range strings.Fields(list) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// cdnOf returns the CDN that an address belongs to, or "".
func cdnOf(a netip.Addr) string {
	for name, ranges := range cdns {
		for _, p := range ranges {
			if p.Contains(a) {
				return name
			}
		}
	}
	return ""
}

// cdnOfName returns the CDN that a host name belongs to, or "".
func cdnOfName(host string) string {
	for below, name := range cdnNames {
		if strings.HasSuffix(host, "."+below) {
			return name
		}
	}
	return ""
}

// machineAddrs returns the unicast addresses of this machine's interfaces.
func machineAddrs() []netip.Addr {
	var out []netip.Addr
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() && !p.Addr().IsMulticast() {
			out = append(out, p.Addr().Unmap().WithZone(""))
		}
	}
	return out
}
