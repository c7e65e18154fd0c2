package server

import (
	"context"
	"net/http"
	"time"

	"slipway/internal/connection"
	"slipway/internal/deployment"
	"slipway/internal/egress"
	"slipway/internal/notify"
	"slipway/internal/site"
	"slipway/internal/source"
)

// wireForges makes what speaks to forges and to people elsewhere.
func (h *node) wireForges(out *egress.Egress) {
	h.connections = connection.New(connection.Config{DB: h.db, Seal: h.seal, Out: out.Client(30 * time.Second), Hosts: h.s.GitAt,
		HostClient: func(addr string) *http.Client { return out.ClientTo(30*time.Second, addr) }, Facts: h.deploymentFacts,
		Base: h.s.BaseURL, Hooks: h.s.APIURL, Log: h.s.Log})
	h.notify = notify.New(notify.Config{DB: h.db, Seal: h.seal, Out: out.Client(20 * time.Second), Owners: h.accounts, Mail: h.s.Mailer, Base: h.s.BaseURL, Log: h.s.Log})
}

// connected returns what a site's repository is read with through a connected account.
func (h *node) connected(ctx context.Context, id site.ID, repository string) (*source.Credential, error) {
	c, err := h.connections.CredentialOf(ctx, string(id), repository)
	if err != nil || c == nil {
		return nil, err
	}
	return &source.Credential{Token: c.Token, User: c.User, Host: c.Host}, nil
}

// deploymentFacts returns what forges are told of a deployment.
func (h *node) deploymentFacts(ctx context.Context, id string) (connection.Facts, error) {
	x, s, err := h.deployments.Lookup(ctx, deployment.ID(id))
	if err != nil {
		return connection.Facts{}, err
	}
	f := connection.Facts{Deployment: id, Site: string(s.ID), SiteName: s.Name, Slug: s.Slug, Repository: x.Repository, Branch: x.Branch, Commit: x.CommitHash, Pull: x.Pull,
		Status: string(x.Status), Error: x.Error, Production: x.Target == deployment.Production, URL: h.sites.URL(s.Slug),
		LogURL: h.s.BaseURL + "/sites/" + string(s.ID) + "/deployments/" + id, UpdatedAt: max(x.CreatedAt, x.StartedAt, x.CompletedAt)}
	if x.Target == deployment.Preview {
		f.URL = x.PreviewURL
	}
	return f, nil
}
