package configure

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway/internal/edge/certs"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/domain"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

func (d *Pages) domainRoutes() []shell.Route {
	return []shell.Route{
		shell.Get("/sites/{id}/domains", shell.User, d.domainsPage).Takes(account.DomainsRead),
		shell.Get("/sites/{id}/domains/follow", shell.User, d.domainsLive).Takes(account.DomainsRead),
		shell.Post("/sites/{id}/domains", shell.User, d.addDomain, d.domainsPage).Takes(account.DomainsWrite),
		shell.Get("/sites/{id}/domains/{domain}", shell.User, d.domainPage).Takes(account.DomainsRead),
		shell.Get("/sites/{id}/domains/{domain}/follow", shell.User, d.domainLive).Takes(account.DomainsRead),
		shell.Post("/sites/{id}/domains/{domain}/verify", shell.User, d.verifyDomain, d.domainPage).Takes(account.DomainsWrite),
		shell.Post("/sites/{id}/domains/{domain}/primary", shell.User, d.makePrimary, d.domainPage).Takes(account.DomainsWrite),
		shell.Post("/sites/{id}/domains/{domain}/redirect", shell.User, d.redirectDomain, d.domainPage).Takes(account.DomainsWrite),
		shell.Post("/sites/{id}/domains/{domain}/delete", shell.User, d.removeDomain, d.domainPage).Takes(account.DomainsWrite),
	}
}

type domainsData struct {
	sites.SiteHead
	Domains []domainRow
	Address certs.Status // certificate of the site's own host name
}

func (d *Pages) domainsData(ctx context.Context, q *shell.Request) (domainsData, error) {
	head, err := d.Head(ctx, q, "domains")
	if err != nil {
		return domainsData{}, err
	}
	list, err := d.Domains.ForSite(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return domainsData{}, err
	}
	own, err := d.Certificates.Of(ctx, d.DB, []string{head.Site.Slug})
	if err != nil {
		return domainsData{}, err
	}
	data := domainsData{SiteHead: head, Address: own.Of(head.Site.Slug)}
	for _, dom := range list {
		data.Domains = append(data.Domains, domainRow{dom})
	}
	return data, err
}

func (d *Pages) domainsPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.domainsData(ctx, q)
	return shell.Page("site_domains", "Domains of "+data.Site.Name, data), err
}

func (d *Pages) domainsLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "domains"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.domainsData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_domains", "domains", data)
		return html, false, err
	}), nil
}

// addDomain claims a name. It queries the DNS for the name's holder before the transaction.
func (d *Pages) addDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "domains")
	if err != nil {
		return shell.Answer{}, err
	}
	name := strings.TrimSpace(q.Value("domain"))
	n, err := d.Domains.Prepare(ctx, q.Caller.Owner, domain.NewDomain{Name: name, RedirectTo: strings.TrimSpace(q.Value("redirect_to"))})
	if err != nil {
		return shell.Answer{}, shell.At("domain", err)
	}
	var dom domain.Domain
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		dom, err = d.Domains.CreateTx(ctx, tx, q.Caller.Owner, head.Site.ID, n)
		return audit.Event{Action: "domain.added", Subject: string(dom.ID), Detail: dom.Name}, err
	})
	return shell.GoTo(head.Base()+"/domains/"+string(dom.ID), ""), shell.At("domain", err)
}

type domainData struct {
	sites.SiteHead
	Dom    domain.Domain
	Others []domain.Domain // the site's other domains, as redirect targets
	Twin   string          // the name with or without www, if the site doesn't have it and its visitors could be redirected here
}

// Wild reports whether it is a wildcard, which can't be primary or a redirect target.
func (x domainData) Wild() bool { return strings.HasPrefix(x.Dom.Name, "*.") }

// Example returns a host that the domain covers.
func (x domainData) Example() string { return strings.Replace(x.Dom.Name, "*.", "www.", 1) }

// Single returns the CNAME record that both proves the name and routes traffic, if that is the only record needed.
func (x domainData) Single() []domain.Record {
	if x.Dom.Proven() || len(x.Dom.DNS) != 1 || x.Dom.DNS[0].Status != domain.RecordPending ||
		x.Dom.Verification[0].Status == domain.RecordValid {
		return nil
	}
	for _, r := range x.Dom.Verification {
		if to := x.Dom.DNS[0]; r.Type == to.Type && r.Name == to.Name && r.Required == to.Required {
			return x.quiet(x.Dom.DNS)
		}
	}
	return nil
}

// Proof returns the records that prove the name: the valid ones, or else the first.
func (x domainData) Proof() []domain.Record {
	var valid []domain.Record
	for _, r := range x.Dom.Verification {
		if r.Status == domain.RecordValid {
			valid = append(valid, r)
		}
	}
	if len(valid) == 0 && x.Single() == nil {
		valid = x.Dom.Verification[:min(1, len(x.Dom.Verification))]
	}
	return x.quiet(valid)
}

// Alternatives returns the other records that could prove the name. It is empty once the name is proven.
func (x domainData) Alternatives() []domain.Record {
	if x.Dom.Proven() {
		return nil
	}
	shown := append(x.Proof(), x.Single()...)
	return x.quiet(slices.DeleteFunc(slices.Clone(x.Dom.Verification), func(r domain.Record) bool {
		return r.Status == domain.RecordValid ||
			slices.ContainsFunc(shown, func(s domain.Record) bool { return s.Type == r.Type && s.Name == r.Name })
	}))
}

// Records returns the records that route traffic here.
func (x domainData) Records() []domain.Record { return x.quiet(x.Dom.DNS) }

// Ahead returns the record that lets the certificate come before visitors, while it is useful.
func (x domainData) Ahead() []domain.Record {
	if x.Dom.Challenge == nil || x.Dom.Status == domain.Active {
		return nil
	}
	return []domain.Record{*x.Dom.Challenge}
}

// Notes returns the problems without duplicates.
func (x domainData) Notes() []string {
	var notes []string
	if x.Dom.Proven() || x.Dom.Status == domain.Failed {
		notes = add(notes, x.Dom.Reason)
	}
	for _, p := range x.Dom.Problems {
		notes = add(notes, p.Message)
	}
	return notes
}

// quiet removes records' reasons that are already in the notes.
func (x domainData) quiet(list []domain.Record) []domain.Record {
	list, notes := slices.Clone(list), x.Notes()
	for i, r := range list {
		if len(add(notes, r.Reason)) == len(notes) {
			list[i].Reason = ""
		}
	}
	return list
}

// add appends a sentence unless one of the notes contains it.
func add(notes []string, s string) []string {
	if s == "" || slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(strings.ToLower(n), strings.ToLower(s)) }) {
		return notes
	}
	return append(notes, s)
}

type domainRow struct{ domain.Domain }

// Says returns a line about the domain: its problem, or what it does.
func (r domainRow) Says() string {
	switch {
	case r.Reason != "":
		return r.Reason
	case len(r.Problems) > 0:
		return r.Problems[0].Message
	case r.RedirectTo != "":
		return "Redirects to " + domain.Unicode(r.RedirectTo)
	}
	return "Serves the site"
}

func (d *Pages) domainData(ctx context.Context, q *shell.Request) (domainData, error) {
	head, err := d.Head(ctx, q, "domains")
	if err != nil {
		return domainData{}, err
	}
	dom, err := d.Domains.Get(ctx, d.DB, q.Caller.Owner, shell.PathID[domain.ID](q, "domain"))
	if err == nil && dom.SiteID != head.Site.ID {
		err = fault.Missing("domain")
	}
	if err != nil {
		return domainData{}, err
	}
	data := domainData{SiteHead: head, Dom: dom}
	if dom.RedirectTo == "" {
		data.Twin = domain.Twin(dom.Name)
	}
	all, err := d.Domains.ForSite(ctx, q.Caller.Owner, head.Site.ID)
	for _, o := range all {
		if o.Name == data.Twin {
			data.Twin = ""
		}
		if o.ID != dom.ID && o.RedirectTo == "" && !strings.HasPrefix(o.Name, "*.") {
			data.Others = append(data.Others, o)
		}
	}
	return data, err
}

func (d *Pages) domainPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.domainData(ctx, q)
	data.Sub = domain.Unicode(data.Dom.Name)
	return shell.Page("site_domain", data.Dom.Name, data), err
}

func (d *Pages) domainLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.domainData(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.domainData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_domain", "domain", data)
		return html, false, err
	}), nil
}

func (d *Pages) verifyDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.domainData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	dom, err := d.Domains.Verify(ctx, q.Caller.Owner, data.Dom.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	says := "DNS not verified yet"
	switch {
	case dom.Status == domain.Active:
		says = domain.Unicode(dom.Name) + " is active"
	case dom.Proven():
		says = "Ownership verified. DNS records don't point to Slipway yet"
	}
	return shell.GoTo(data.Base()+"/domains/"+string(dom.ID), says), nil
}

// changeDomain updates a domain.
func (d *Pages) changeDomain(ctx context.Context, q *shell.Request, u domain.Update, says string) (shell.Answer, error) {
	data, err := d.domainData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Domains.UpdateTx(ctx, tx, q.Caller.Owner, data.Dom.ID, u)
		return audit.Event{Action: "domain.updated", Subject: string(data.Dom.ID), Detail: data.Dom.Name}, err
	})
	return shell.GoTo(data.Base()+"/domains/"+string(data.Dom.ID), says), err
}

func (d *Pages) makePrimary(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	yes := true
	return d.changeDomain(ctx, q, domain.Update{Primary: &yes}, "Primary domain changed")
}

func (d *Pages) redirectDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	to, says := strings.TrimSpace(q.Value("redirect_to")), "Redirect removed"
	if to != "" {
		says = "Redirecting to " + to
	}
	a, err := d.changeDomain(ctx, q, domain.Update{RedirectTo: &to}, says)
	return a, shell.At("redirect_to", err)
}

func (d *Pages) removeDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.domainData(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Domains.DeleteTx(ctx, tx, q.Caller.Owner, data.Dom.ID)
		return audit.Event{Action: "domain.removed", Subject: string(data.Dom.ID), Detail: data.Dom.Name}, err
	})
	return shell.GoTo(data.Base()+"/domains", "Removed "+domain.Unicode(data.Dom.Name)), err
}
