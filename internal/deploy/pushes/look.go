package pushes

import (
	"context"
	"time"

	"slipway/internal/build/framework"
	"slipway/internal/deploy/project"
	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Look reads what repositories contain, without a deployment.
type Look struct {
	Source *fetch.Fetcher
	Sites  *site.Sites
}

// Heads returns the branches and tags of a site's repository.
func (l Look) Heads(ctx context.Context, s site.Site) (map[string]string, string, error) {
	repo, err := fetch.ParseRepository(s.Repository)
	if err != nil {
		return nil, "", err
	}
	cred, err := l.Sites.CredentialOf(ctx, s)
	if err != nil {
		return nil, "", err
	}
	return l.Source.Heads(ctx, fetch.Request{Site: s.ID, Repository: repo, Credential: cred, Owner: s.Owner})
}

// Branches lists the branches of a repository from which a user is about to create a site.
func (l Look) Branches(ctx context.Context, who account.OwnerID, repository string, c *fetch.Credential) ([]string, string, error) {
	repo, err := fetch.ParseRepository(repository)
	if err != nil {
		return nil, "", err
	}
	id := site.ID(db.NewID("look"))
	defer l.Source.Forget(context.WithoutCancel(ctx), id)
	return l.Source.Branches(ctx, fetch.Request{Site: id, Repository: repo, Credential: c, Owner: who, Look: true})
}

// Detect returns how a branch would be built, from a temporary copy.
func (l Look) Detect(
	ctx context.Context,
	who account.OwnerID,
	repository, branch string,
	c *fetch.Credential,
	o framework.Overrides,
) (framework.Plan, error) {
	repo, err := fetch.ParseRepository(repository)
	if err != nil {
		return framework.Plan{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id := site.ID(db.NewID("look"))
	defer l.Source.Forget(context.WithoutCancel(ctx), id)
	tree, err := l.Source.Fetch(ctx, fetch.Request{
		Site:       id,
		Repository: repo,
		Branch:     branch,
		Credential: c,
		Owner:      who,
		Look:       true,
	})
	if err != nil {
		return framework.Plan{}, err
	}
	defer tree.Close()
	return project.Detect(ctx, tree, o)
}
