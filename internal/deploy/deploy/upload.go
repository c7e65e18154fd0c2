package deploy

import (
	"context"

	"slipway/internal/build/framework"
	"slipway/internal/build/publish"
	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/project"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// DeployUploadTx deploys a complete upload. If it was deployed before, it returns that deployment.
func (d *Deployments) DeployUploadTx(
	ctx context.Context,
	tx *db.Tx,
	owner account.OwnerID,
	c upload.Complete,
	by deployment.Cause,
) (deployment.Deployment, error) {
	u, err := d.c.Uploads.TakeTx(ctx, tx, owner, c)
	if err != nil {
		return deployment.Deployment{}, err
	}
	if u.Deployment != "" {
		return d.OwnedTx(ctx, tx, owner, u.Deployment)
	}
	x, err := d.TriggerTx(ctx, tx, owner, u.Site, Trigger{
		Cause: by, Upload: u.ID, Target: deployment.Target(u.Target), Branch: u.Branch, Title: u.Title,
	})
	if err != nil {
		return x, err
	}
	return x, d.c.Uploads.DeployedTx(ctx, tx, u.ID, x.ID)
}

// sourceTx decides whether a deployment is made from a commit or from an upload, and returns the upload.
func (d *Deployments) sourceTx(ctx context.Context, tx *db.Tx, s site.Site, t *Trigger) (u upload.Upload, err error) {
	if s.Source() != site.SourceUpload {
		if t.Upload != "" {
			return u, fault.New(fault.Conflict, "site_has_repository", "The site is deployed from its Git repository",
				"push to deploy it, or remove its repository to upload files")
		}
		return u, nil
	}
	if d.c.Uploads == nil {
		return u, &fault.Error{Kind: fault.Unavailable, Message: "Uploads can't be deployed on this server"}
	}
	if t.Commit != "" {
		return u, fault.New(fault.Invalid, "no_repository", "The site has no repository",
			"omit commit: the last upload is deployed")
	}
	if t.Upload != "" {
		return d.c.Uploads.OfDeploymentTx(ctx, tx, s, t.Upload)
	}
	if t.Target == "" && t.Branch != "" {
		t.Target = deployment.Preview // only previews have a branch here
	}
	if t.Target, err = chooseTarget(s, *t); err != nil {
		return u, err
	}
	if t.Target == deployment.Production && t.Branch != "" {
		return u, fault.New(fault.Invalid, "no_repository", "The site's production has no branch",
			"omit branch, or deploy a preview").Got(text.Clip(t.Branch, 200))
	}
	if t.Target == deployment.Preview && t.Branch == "" {
		t.Branch = upload.PreviewBranch
	}
	if u, err = d.c.Uploads.LastTx(ctx, tx, s, string(t.Target), t.Branch); err == nil {
		t.Upload, t.Branch = u.ID, u.Branch
	}
	return u, err
}

// describe copies the upload's facts to the deployment.
func describe(x *deployment.Deployment, u upload.Upload, t Trigger) {
	x.Upload, x.Branch, x.Repository = u.ID, t.Branch, ""
	x.CommitHash, x.CommitMessage, x.CommitAuthor, x.Pinned = u.CommitHash, u.CommitMessage, u.CommitAuthor, false
	x.Source = &deployment.Source{Kind: string(u.Kind), Files: u.Files, Bytes: u.Bytes, Digest: u.Manifest, Dirty: u.Dirty}
}

// uploaded opens the upload of a deployment.
func (d *Deployments) uploaded(ctx context.Context, x *deployment.Deployment, p *progress) (sourceTree, error) {
	tree, err := d.c.Uploads.Open(ctx, x.Upload)
	if err != nil {
		return nil, err
	}
	files := "files"
	if x.Source.Files == 1 {
		files = "file"
	}
	p.Printf("info", "Uploaded: %d %s, %s", x.Source.Files, files, publish.Size(x.Source.Bytes))
	return tree, nil
}

// planOf returns the plan for a commit or an upload. Uploaded output is published as it is.
func (d *Deployments) planOf(ctx context.Context, s site.Site, x deployment.Deployment, tree sourceTree) (framework.Plan, error) {
	if x.Source == nil || x.Source.Kind != string(upload.Output) {
		variables, err := d.readable(ctx, x)
		if err != nil {
			return framework.Plan{}, err
		}
		return project.Plan(ctx, s, variables, tree)
	}
	return framework.Plan{
		Framework: "static", Name: "Static files", Runtime: framework.Static, Why: "the files were uploaded ready to be published",
	}, nil
}

// manifestCommit stands in for the commit in builds of uploads without one.
func manifestCommit(x deployment.Deployment) string {
	if x.Source == nil {
		return ""
	}
	return x.Source.Digest[:min(40, len(x.Source.Digest))]
}
