package deploy

import (
	"context"

	"slipway/internal/deploy/deployment"
	"slipway/internal/tenant/connection"
)

// Facts returns what is reported about a deployment to Git providers.
func (d *Deployments) Facts(ctx context.Context, id deployment.ID) (connection.Facts, error) {
	x, s, err := d.Lookup(ctx, id)
	if err != nil {
		return connection.Facts{}, err
	}
	f := connection.Facts{
		Deployment: id,
		Site:       s.ID,
		SiteName:   s.Name,
		Slug:       s.Slug,
		Repository: x.Repository,
		Branch:     x.Branch,
		Commit:     x.CommitHash,
		Pull:       x.Pull,
		Status:     string(x.Status),
		Error:      x.Error,
		Production: x.Target == deployment.Production,
		URL:        d.c.Sites.URL(s.Slug),
		LogURL:     d.c.BaseURL + "/sites/" + string(s.ID) + "/deployments/" + string(id),
		UpdatedAt:  max(x.CreatedAt, x.StartedAt, x.CompletedAt),
	}
	if x.Target == deployment.Preview {
		f.URL = x.PreviewURL
	}
	return f, nil
}
