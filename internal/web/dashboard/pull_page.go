package dashboard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/fault"
)

// pullDeployments is how many deployments the page of a pull request lists.
const pullDeployments = 20

type pullData struct {
	siteHead
	Pull     pullRow
	Forge    string // how people call it; empty where it is not known
	Preview  *previewRow
	Rows     []deploymentRow
	More     bool   // there are more deployments
	Approved string // commit that a member approved; empty: none
}

// Latest is the newest deployment; nil: there is none.
func (p pullData) Latest() *deploymentRow {
	if len(p.Rows) == 0 {
		return nil
	}
	return &p.Rows[0]
}

func (d *Dashboard) pullData(ctx context.Context, q *request) (pullData, error) {
	head, err := d.head(ctx, q, "git")
	if err != nil {
		return pullData{}, err
	}
	who, id := q.caller.Owner, head.Site.ID
	number, err := strconv.Atoi(q.PathValue("number"))
	if err != nil {
		return pullData{}, fault.Missing("pull request")
	}
	set, err := d.Git.Get(ctx, d.DB, who, id)
	if err != nil {
		return pullData{}, err
	}
	p, err := d.Git.Pull(ctx, d.DB, who, id, number)
	if err != nil {
		return pullData{}, err
	}
	data := pullData{
		siteHead: head,
		Pull:     pullRow{p, set.PullURL(head.Site.Repository, number)},
		Forge:    set.Forge(head.Site.Repository).Name(),
	}
	if p.Approved == p.Commit {
		data.Approved = p.Approved
	}
	list, total, err := d.Deployments.List(ctx, who, id, deployment.Filter{Pull: number, Page: 1, Limit: pullDeployments})
	if err != nil {
		return data, err
	}
	data.Rows, data.More = rowsOf(head, list), total > len(list)
	addresses, err := d.Deployments.Previews.List(ctx, who, id)
	if err != nil {
		return data, err
	}
	for _, a := range addresses {
		if a.Pull != number {
			continue
		}
		served, err := d.Deployments.Several(ctx, who, []deployment.ID{deployment.ID(a.Deployment)})
		if err != nil {
			return data, err
		}
		data.Preview = &previewRow{Address: a}
		if x, ok := served[deployment.ID(a.Deployment)]; ok {
			data.Preview.Dep = &deploymentRow{x, head}
		}
	}
	return data, nil
}

// pullPage shows what there is of one pull request: its commit, its preview and its deployments.
func (d *Dashboard) pullPage(ctx context.Context, q *request) (answer, error) {
	data, err := d.pullData(ctx, q)
	return page("site_pull", fmt.Sprintf("Pull request %d of %s", data.Pull.Number, data.Site.Name), data), err
}

// pullLive sends it again whenever it changes.
func (d *Dashboard) pullLive(ctx context.Context, q *request) (answer, error) {
	if _, err := d.pullData(ctx, q); err != nil {
		return answer{}, err
	}
	wake, stop := d.follow(q)
	return answer{live: live{wake: wake, stop: stop, poll: 3 * time.Second, render: func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.pullData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.part(ctx, q, "site_pull", "pull", data)
		return html, false, err
	}}}, nil
}
