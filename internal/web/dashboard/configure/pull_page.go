package configure

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/fault"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// pullDeployments caps the deployments listed.
const pullDeployments = 20

type pullData struct {
	sites.SiteHead
	Pull     pullRow
	Forge    string // the provider's display name; empty if unknown
	Preview  *previewRow
	Rows     []sites.DeploymentRow
	More     bool   // whether more deployments exist
	Approved string // commit that a member approved; empty: none
}

// Latest returns the newest deployment, or nil.
func (p pullData) Latest() *sites.DeploymentRow {
	if len(p.Rows) == 0 {
		return nil
	}
	return &p.Rows[0]
}

func (d *Pages) pullData(ctx context.Context, q *shell.Request) (pullData, error) {
	head, err := d.Head(ctx, q, "git")
	if err != nil {
		return pullData{}, err
	}
	who, id := q.Caller.Owner, head.Site.ID
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
		SiteHead: head,
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
	data.Rows, data.More = sites.RowsOf(head, list), total > len(list)
	addresses, err := d.Deployments.Previews.List(ctx, who, id)
	if err != nil {
		return data, err
	}
	for _, a := range addresses {
		if a.Pull != number {
			continue
		}
		served, err := d.Deployments.Several(ctx, who, []deployment.ID{a.Deployment})
		if err != nil {
			return data, err
		}
		data.Preview = &previewRow{Address: a}
		if x, ok := served[a.Deployment]; ok {
			data.Preview.Dep = sites.Row(head, x)
		}
	}
	return data, nil
}

// pullPage shows a pull request's commit, preview and deployments.
func (d *Pages) pullPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.pullData(ctx, q)
	data.Sub, data.OwnActions = fmt.Sprintf("%s #%d", data.Pull.Title, data.Pull.Number), true
	return shell.Page("site_pull", fmt.Sprintf("Pull request %d of %s", data.Pull.Number, data.Site.Name), data), err
}

// pullLive updates the page when it changes.
func (d *Pages) pullLive(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if _, err := d.pullData(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	return shell.LivePart(3*time.Second, func(ctx context.Context) ([]byte, bool, error) {
		data, err := d.pullData(ctx, q)
		if err != nil {
			return nil, false, err
		}
		html, err := d.Part(ctx, q, "site_pull", "pull", data)
		return html, false, err
	}), nil
}
