package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"slipway/internal/platform/db"
)

// Expired is the state of an expired certificate. Only [Status] has it.
const Expired State = "expired"

// Status describes the certificate of a site's own address. Unknown times are zero.
type Status struct {
	State       State // Pending, Active, Failed or Expired
	Reason      string
	Issuer      string
	NotAfter    db.Time
	NextAttempt db.Time
}

// Addresses reports the certificates of sites' own addresses. It needs no [Certs], because the caller may be another
// process than the one that orders.
type Addresses struct {
	SiteDomain string
	Public     bool // certificates come from an ACME authority
	Shared     bool // all sites share a wildcard's, if the DNS is set up for it
}

// Statuses holds the states of the certificates of several labels.
type Statuses struct {
	most  Status // status of labels that aren't in of
	other map[string]Status
}

// Of returns the status of a label's certificate.
func (s Statuses) Of(label string) Status {
	if other, ok := s.other[label]; ok {
		return other
	}
	return s.most
}

// Of returns the states of the certificates of labels below the site domain.
func (a Addresses) Of(ctx context.Context, r db.Reader, labels []string) (Statuses, error) {
	if !a.Public || !orderable(a.SiteDomain) {
		return Statuses{most: Status{
			State: Active, Issuer: "Slipway Local Authority",
			Reason: "Issued by this installation's local certificate authority. Browsers show a warning unless they trust it.",
		}}, nil
	}
	out := Statuses{Status{State: Pending, Reason: "Issued on the first visit."}, map[string]Status{}}
	if a.Shared {
		if err := a.read(ctx, r, out.other, []string{"*"}); err != nil {
			return out, err
		}
		if shared := out.other["*"]; shared.State == Active {
			return Statuses{most: shared}, nil
		}
	}
	const page = 500
	for ; len(labels) > 0; labels = labels[min(len(labels), page):] {
		if err := a.read(ctx, r, out.other, labels[:min(len(labels), page)]); err != nil {
			return out, err
		}
	}
	return out, nil
}

// read adds the stored certificates of labels to out.
func (a Addresses) read(ctx context.Context, r db.Reader, out map[string]Status, labels []string) error {
	hosts := make([]string, len(labels))
	for i, label := range labels {
		hosts[i] = label + "." + a.SiteDomain
	}
	var args db.Args
	now := time.Now()
	// This doesn't read the certificates: with their keys they are a hundred times larger.
	rows, err := r.Query(ctx,
		"SELECT host, state, error, issuer, not_after, next_at FROM certificates WHERE state <> 'gone' AND host IN ("+
			db.AddList(&args, hosts)+")",
		args...)
	_, err = db.Collect(rows, err, func(from db.Scanner) (struct{}, error) {
		var c row
		err := from.Scan(&c.host, &c.state, &c.err, &c.issuer, &c.notAfter, &c.nextAt)
		out[strings.TrimSuffix(c.host, "."+a.SiteDomain)] = c.status(now)
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("read certificates of sites: %w", err)
	}
	return nil
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
