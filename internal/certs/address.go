package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/db"
)

// Expired is the state of a certificate that has ended, as Status has it.
const Expired State = "expired"

// Status describes the certificate of a site's own address. Times are zero where
// there is nothing to say.
type Status struct {
	State       State // Pending, Active, Failed or Expired
	Reason      string
	Issuer      string
	NotAfter    db.Time
	NextAttempt db.Time
}

// Addresses tells of the certificates of sites' own addresses. It needs no Certs: whoever
// asks may be another process than the one that orders.
type Addresses struct {
	SiteDomain string
	Public     bool // certificates come from an ACME authority
	Shared     bool // all sites share a wildcard's, if the DNS is set up for it
}

// Of returns the state of the certificate of each label below the site domain.
func (a Addresses) Of(ctx context.Context, r db.Reader, labels []string) (map[string]Status, error) {
	out := map[string]Status{}
	if !a.Public || !orderable(a.SiteDomain) {
		for _, label := range labels {
			out[label] = Status{State: Active, Issuer: "Slipway Local Authority",
				Reason: "Issued by this installation's local certificate authority. Browsers show a warning unless they trust it."}
		}
		return out, nil
	}
	for _, label := range labels {
		out[label] = Status{State: Pending, Reason: "Issued on the first visit."}
	}
	const page = 500
	for rest := append([]string{"*"}, labels...); len(rest) > 0; rest = rest[min(len(rest), page):] {
		var hosts []string
		for _, label := range rest[:min(len(rest), page)] {
			hosts = append(hosts, label+"."+a.SiteDomain)
		}
		var args db.Args
		rows, err := r.Query(ctx, "SELECT "+columns+" FROM certificates WHERE state <> 'gone' AND host IN ("+db.AddList(&args, hosts)+")", args...)
		found, err := db.Collect(rows, err, scan)
		if err != nil {
			return nil, fmt.Errorf("read certificates of sites: %w", err)
		}
		for _, c := range found {
			label := strings.TrimSuffix(c.host, "."+a.SiteDomain)
			if label != "*" {
				out[label] = c.status(time.Now())
			} else if s := c.status(time.Now()); a.Shared && s.State == Active {
				for _, label := range labels {
					out[label] = s
				}
				return out, nil
			}
		}
	}
	return out, nil
}

func (r row) status(now time.Time) Status {
	s := Status{State: r.state, Reason: r.err, Issuer: r.issuer, NotAfter: r.notAfter, NextAttempt: r.nextAt}
	switch {
	case r.notAfter != 0 && r.notAfter <= db.At(now):
		s.State = Expired
	case r.state == Pending && r.err == "":
		s.Reason = "Being issued."
	}
	return s
}
