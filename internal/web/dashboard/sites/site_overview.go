package sites

import (
	"context"
	"slices"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// trouble is a problem of a site with the page that solves it.
type trouble struct {
	Title, Text, Link, Label string
}

type overview struct {
	SiteHead
	Rows    []DeploymentRow
	Domains []domain.Domain
	Hooks   []site.Hook // newest three
	Trouble []trouble
	Current *DeploymentRow // the live deployment; nil if none, or if it is old
	Visits  visits
	Cockpit cockpit
	Events  []happening // newest first
}

func (d *Pages) siteOverview(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.siteOverviewData(ctx, q)
	return shell.Page("site_overview", data.Site.Name, data), err
}

// siteLive updates the overview when the site or its deployments change.
func (d *Pages) siteLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.Head(ctx, q, "overview"); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.siteOverviewData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_overview", "overview", data)
		return html, false, err
	}), nil
}

func (d *Pages) siteOverviewData(ctx context.Context, q *shell.Request) (overview, error) {
	head, err := d.Head(ctx, q, "overview")
	if err != nil {
		return overview{}, err
	}
	data := overview{SiteHead: head}
	list, _, err := d.Deployments.List(ctx, q.Caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 10})
	if err != nil {
		return data, err
	}
	data.Rows = RowsOf(head, list[:min(len(list), 5)])
	if id := head.Site.LiveDeployment; id != "" {
		live, err := d.Deployments.Get(ctx, q.Caller.Owner, id)
		if err == nil {
			data.Current = &DeploymentRow{Deployment: live, head: head}
		}
	}
	if data.Domains, err = d.Domains.ForSite(ctx, q.Caller.Owner, head.Site.ID); err != nil {
		return data, err
	}
	if data.Hooks, err = d.Sites.Hooks(ctx, q.Caller.Owner, head.Site.ID); err != nil {
		return data, err
	}
	slices.Reverse(data.Hooks)
	data.Hooks = data.Hooks[:min(len(data.Hooks), 3)]
	data.Trouble = troubles(head, list, data.Domains)
	if data.Cockpit, err = d.cockpit(ctx, q, head, list); err != nil {
		return data, err
	}
	if data.Events, err = d.timeline(ctx, q, head, list, data.Domains); err != nil {
		return data, err
	}
	all, on := shell.Chosen(shell.Stretches[:3], q.Query("traffic"), func(name string) string {
		return shell.Link(head.Base(), "traffic", name) + "#traffic"
	})
	v, s, err := d.visits(ctx, q, head, on)
	if err != nil {
		return data, err
	}
	data.Visits, data.Visits.Stretches, data.Visits.Plots = v, all, []shell.Plot{requestsPlot(s, on)}
	return data, nil
}

// troubles lists the site's problems, worst first. A problem whose page is the main button's target has no link.
func troubles(h SiteHead, list []deployment.Deployment, domains []domain.Domain) []trouble {
	var out []trouble
	switch {
	case h.Site.Status == site.Failed && h.Site.StatusReason != "":
		t := trouble{"The site is not live", h.Site.StatusReason, "", ""}
		if len(list) > 0 && h.Next() != "view-error" {
			t.Link, t.Label = DeploymentPath(h.Site.ID, list[0].ID), "View error"
		}
		out = append(out, t)
	case len(list) > 0 && list[0].Status == deployment.Failed && h.Site.Status == site.Active:
		out = append(out, trouble{"Latest deployment failed. The previous deployment is still live", list[0].Error, "", ""})
	}
	if h.Health() == "crashed" {
		out = append(out, trouble{"The application crashed", h.Process.Message, h.Base() + "/logs", "View logs"})
	}
	for _, dom := range domains {
		link := h.Base() + "/domains/" + string(dom.ID)
		switch {
		case dom.Status == domain.Failed:
			out = append(out, trouble{domain.Unicode(dom.Name) + ": verification failed", dom.Reason, link, "View DNS records"})
		case dom.Status == domain.Active && (dom.SSL == domain.SSLFailed || dom.SSL == domain.SSLExpired):
			out = append(out, trouble{domain.Unicode(dom.Name) + ": no valid certificate", dom.Certificate.LastError, link, "View domain"})
		case dom.Status == domain.Active && dom.Certificate.LastError != "":
			out = append(out, trouble{
				domain.Unicode(dom.Name) + ": certificate renewal failed",
				dom.Certificate.LastError,
				link,
				"View domain",
			})
		case dom.Status == domain.Active && len(dom.Problems) > 0:
			out = append(out, trouble{domain.Unicode(dom.Name) + ": DNS problem", dom.Problems[0].Message, link, "View domain"})
		}
	}
	return out
}

// firstDeployment redirects to a new site's first deployment as soon as it exists, which is usually before the browser
// asks.
func (d *Pages) firstDeployment(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	wake, stop := d.Follow(q)
	defer stop()
	late := time.NewTimer(1500 * time.Millisecond)
	defer late.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		head, err := d.Head(ctx, q, "deployments")
		if err != nil {
			return shell.Answer{}, err
		}
		list, _, err := d.Deployments.List(ctx, q.Caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 1})
		if err != nil {
			return shell.Answer{}, err
		}
		if len(list) > 0 {
			return shell.GoTo(DeploymentPath(head.Site.ID, list[0].ID), ""), nil
		}
		if head.Uploaded() { // nothing is deployed before the first upload
			return shell.GoTo(head.Base()+"/deployments", ""), nil
		}
		if !head.Deployable() {
			return shell.GoTo(head.Base(), ""), nil
		}
		select {
		case <-ctx.Done():
			return shell.Answer{}, ctx.Err()
		case <-late.C:
			return shell.Page("site_first", head.Site.Name, head), nil
		case <-wake:
		case <-look.C:
		}
	}
}

// firstLive ends once a deployment exists, whereupon the page reloads.
func (d *Pages) firstLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "deployments")
	if err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(500*time.Millisecond, func(ctx context.Context) ([]byte, bool, error) {
		list, _, err := d.Deployments.List(ctx, q.Caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 1})
		return []byte("Waiting for the first deployment…"), len(list) > 0, err
	}), nil
}
