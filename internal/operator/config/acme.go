package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"

	"slipway/internal/edge/certs"
)

// checkACME checks what was said about authorities. Everything else was checked before.
func (s *Settings) checkACME(wrong *Problems) {
	hosts := map[string]bool{}
	valid := true
	for _, ca := range s.ACMECA {
		u, err := url.Parse(ca)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			valid = wrong.add(fmt.Errorf("--acme-ca: %q is not an https address of an ACME directory", ca))
			continue
		}
		hosts[u.Hostname()] = true
	}
	if len(s.ACMECA) == 0 {
		for _, x := range []struct {
			flag string
			said bool
		}{
			{"--acme-email", s.ACMEEmail != ""},
			{"--acme-eab", len(s.ACMEEAB) > 0},
			{"--acme-dns", s.ACMEDNS != ""},
			{"--acme-dns-zone", s.ACMEDNSZone != ""},
		} {
			if x.said {
				wrong.add(fmt.Errorf("%s has no effect without --acme-ca", x.flag))
			}
		}
		return
	}
	if s.EdgeHTTPS == "" {
		wrong.add(errors.New("--acme-ca needs --edge-https"))
	}
	if s.ACMEEmail != "" {
		if a, err := mail.ParseAddress(s.ACMEEmail); err != nil || a.Address != s.ACMEEmail {
			wrong.add(fmt.Errorf("--acme-email: %q is not an email address", s.ACMEEmail))
		}
	}
	if valid {
		wrong.add(s.checkBindings(hosts))
	}
	wrong.add(s.checkZone())
}

// checkBindings reads [HOST=]KID:HMAC. Errors never repeat what was said: it is a secret.
func (s *Settings) checkBindings(hosts map[string]bool) error {
	s.Bindings = map[string]certs.Binding{}
	for _, text := range s.ACMEEAB {
		id, key, ok := strings.Cut(text, ":")
		host, kid, named := strings.Cut(id, "=")
		if !named {
			host, kid = "", id
			if len(hosts) > 1 {
				return errors.New("--acme-eab: use HOST=KID:HMAC, because there are several directories")
			}
			for only := range hosts {
				host = only
			}
		}
		_, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(key, "="))
		switch {
		case !ok || kid == "" || key == "" || err != nil:
			return errors.New("--acme-eab: it is not KID:HMAC or HOST=KID:HMAC, with the HMAC key in base64url")
		case !hosts[host]:
			return fmt.Errorf("--acme-eab: no --acme-ca is at %q", host)
		}
		s.Bindings[host] = certs.Binding{KeyID: kid, HMAC: key}
	}
	return nil
}

// checkZone refuses a zone for challenges that would take sites or the control plane out
// of the DNS, for whoever delegates it delegates all below it.
func (s *Settings) checkZone() error {
	if (s.ACMEDNS == "") != (s.ACMEDNSZone == "") {
		return errors.New("--acme-dns and --acme-dns-zone must be used together")
	}
	if s.ACMEDNSZone == "" {
		return nil
	}
	zone := strings.ToLower(strings.TrimSuffix(s.ACMEDNSZone, "."))
	if !domainForm.MatchString(strings.TrimPrefix(zone, "_")) || !strings.Contains(zone, ".") || len(zone) > 200 {
		return fmt.Errorf("--acme-dns-zone: %q is not a domain name such as acme.example.com", s.ACMEDNSZone)
	}
	for _, host := range append([]string{s.SiteDomain}, s.OwnHosts...) {
		if host == zone || strings.HasSuffix(host, "."+zone) {
			return fmt.Errorf(
				"--acme-dns-zone: %s lies in %s, and would be gone from the DNS: use a name of its own, such as acme.example.com",
				host,
				zone,
			)
		}
	}
	// No site's name begins with an underscore.
	if strings.HasSuffix(zone, "."+s.SiteDomain) && zone != "_acme."+s.SiteDomain {
		return fmt.Errorf(
			"--acme-dns-zone: %s lies among the sites: use a name outside of %s, or _acme.%s",
			zone,
			s.SiteDomain,
			s.SiteDomain,
		)
	}
	s.ACMEDNSZone = zone
	return nil
}

// NoWildcard is the warning of an installation that orders from an ACME authority and
// answers no challenges in the DNS.
const NoWildcard = "--acme-ca without --acme-dns: the addresses of single deployments and previews get no certificate, " +
	"because none but a trusted one is served; every site's own address needs one of its own, and authorities issue about 50 new ones " +
	"a week in a domain. Set --acme-dns and --acme-dns-zone for a wildcard"

// Local reports whether names below a site domain lead to this very machine for everybody.
func Local(domain string) bool {
	return domain == "" || domain == "localhost" ||
		len(domain) > len(".localhost") && domain[len(domain)-len(".localhost"):] == ".localhost"
}
