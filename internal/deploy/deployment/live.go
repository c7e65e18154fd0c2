package deployment

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path"
	"strings"

	"slipway/internal/build/bundle"
	"slipway/internal/build/framework"
	"slipway/internal/build/release"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/site"
)

// Live is what a site serves, as stored in backups. The files themselves are blobs.
type Live struct {
	Release       release.ID      `json:"release"`
	Bundle        bundle.ID       `json:"bundle,omitempty"`
	Runtime       string          `json:"runtime"`
	Framework     string          `json:"framework,omitempty"`
	Plan          json.RawMessage `json:"plan,omitempty"`
	Branch        string          `json:"branch,omitempty"`
	CommitHash    string          `json:"commitHash,omitempty"`
	CommitMessage string          `json:"commitMessage,omitempty"`
	CommitAuthor  string          `json:"commitAuthor,omitempty"`
}

// LiveOf returns what a site serves; nil while it serves nothing.
func (d *Deployments) LiveOf(ctx context.Context, id site.ID) (*Live, error) {
	x, err := d.Find(ctx, d.c.DB, `WHERE d.site_id = $1 AND d.id = s.live_deployment`, id)
	if errors.Is(err, sql.ErrNoRows) || fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &Live{
		Release: x.Release, Bundle: x.Bundle, Runtime: x.Runtime, Framework: x.Framework, Plan: x.Plan, Branch: x.Branch,
		CommitHash: x.CommitHash, CommitMessage: x.CommitMessage, CommitAuthor: x.CommitAuthor,
	}, nil
}

// WatchOf returns build.watch of the slipway.toml that the live deployment was built with (nil if not set), and the
// workspace folders that it was made from (nil if not known).
func (d *Deployments) WatchOf(ctx context.Context, r db.Reader, s site.Site) (watch, uses []string, err error) {
	if s.LiveDeployment == "" {
		return nil, nil, nil
	}
	x, err := d.ByID(ctx, r, s.LiveDeployment)
	if fault.Is(err, fault.NotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var plan framework.Plan
	if len(x.Plan) == 0 || json.Unmarshal(x.Plan, &plan) != nil { // written by another version
		return nil, nil, nil
	}
	if s.Build.Root != nil && strings.Trim(path.Clean("/"+*s.Build.Root), "/") != plan.Root {
		return plan.Watch, nil, nil // the root directory was changed since
	}
	return plan.Watch, plan.Uses, nil
}
