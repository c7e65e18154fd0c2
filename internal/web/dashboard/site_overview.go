package dashboard

import (
	"context"
	"slices"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/domain"
	"slipway/internal/tenant/site"
)

// trouble is a problem of a site, in words, and where to fix it.
type trouble struct {
	Title, Text, Link, Label string
}

type overview struct {
	siteHead
	Rows    []deploymentRow
	Domains []domain.Domain
	Hooks   []site.Hook // the newest three
	Trouble []trouble
	Current *deploymentRow // what is served; nil when nothing, or when it is long ago
	Visits  visits
}

func (d *Dashboard) siteOverview(ctx context.Context, q *request) (answer, error) {
	data, err := d.siteOverviewData(ctx, q)
	return page("site_overview", data.Site.Name, data), err
}

// siteLive sends the overview again whenever the site or a deployment of it moves.
func (d *Dashboard) siteLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.head(ctx, q, "overview"); err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: 3 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.siteOverviewData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_overview", "overview", data)
		return html, false, err
	}}}, nil
}

func (d *Dashboard) siteOverviewData(ctx context.Context, q *request) (overview, error) {
	head, err := d.head(ctx, q, "overview")
	if err != nil {
		return overview{}, err
	}
	data := overview{siteHead: head}
	list, _, err := d.Deployments.List(ctx, q.caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 5})
	if err != nil {
		return data, err
	}
	data.Rows = rowsOf(head, list)
	if id := deployment.ID(head.Site.LiveDeployment); id != "" {
		live, err := d.Deployments.Get(ctx, q.caller.Owner, id)
		if err == nil {
			data.Current = &deploymentRow{Deployment: live, head: head}
		}
	}
	if data.Domains, err = d.Domains.ForSite(ctx, q.caller.Owner, string(head.Site.ID)); err != nil {
		return data, err
	}
	if data.Hooks, err = d.Sites.Hooks(ctx, q.caller.Owner, head.Site.ID); err != nil {
		return data, err
	}
	slices.Reverse(data.Hooks)
	data.Hooks = data.Hooks[:min(len(data.Hooks), 3)]
	data.Trouble = troubles(head, list, data.Domains)
	all, on := chosen(stretches[:3], q.query("traffic"), func(name string) string {
		return link(
			head.Base(),
			"traffic",
			name,
		) + "#traffic"
	})
	v, s, err := d.visits(ctx, q, head, on)
	if err != nil {
		return data, err
	}
	data.Visits, data.Visits.Stretches, data.Visits.Plots = v, all, []plot{requestsPlot(s, on)}
	return data, nil
}

// troubles says what needs the owner, the worst first.
func troubles(h siteHead, list []deployment.Deployment, domains []domain.Domain) []trouble {
	var out []trouble
	switch {
	case h.Site.Status == site.Failed && h.Site.StatusReason != "":
		t := trouble{"The site is not live", h.Site.StatusReason, "", ""}
		if len(list) > 0 {
			t.Link, t.Label = deploymentPath(h.Site.ID, list[0].ID), "View log"
		}
		out = append(out, t)
	case len(list) > 0 && list[0].Status == deployment.Failed && h.Site.Status == site.Active:
		out = append(out, trouble{
			"Latest deployment failed. The previous deployment is still live",
			list[0].Error,
			deploymentPath(h.Site.ID, list[0].ID),
			"View log",
		})
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

// firstDeployment goes to a new site's first deployment as soon as there is one. The job
// that makes it usually has by the time a browser asks.
func (d *Dashboard) firstDeployment(ctx context.Context, q *request) (answer, error) {
	wake, stop := d.follow(q)
	defer stop()
	late := time.NewTimer(1500 * time.Millisecond)
	defer late.Stop()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		head, err := d.head(ctx, q, "deployments")
		if err != nil {
			return answer{}, err
		}
		list, _, err := d.Deployments.List(ctx, q.caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 1})
		if err != nil {
			return answer{}, err
		}
		if len(list) > 0 {
			return goTo(deploymentPath(head.Site.ID, list[0].ID), ""), nil
		}
		if !head.Deployable() {
			return goTo(head.Base(), ""), nil
		}
		select {
		case <-ctx.Done():
			return answer{}, ctx.Err()
		case <-late.C:
			return page("site_first", head.Site.Name, head), nil
		case <-wake:
		case <-look.C:
		}
	}
}

// firstLive ends as soon as there is a deployment; the page then loads itself anew.
func (d *Dashboard) firstLive(ctx context.Context, q *request) (answer, error) {
	head, err := d.head(ctx, q, "deployments")
	if err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: 500 * time.Millisecond, render: func(ctx context.Context) ([]byte, bool, error) {
		list, _, err := d.Deployments.List(ctx, q.caller.Owner, head.Site.ID, deployment.Filter{Page: 1, Limit: 1})
		return []byte("Waiting for the first deployment…"), len(list) > 0, err
	}}}, nil
}
