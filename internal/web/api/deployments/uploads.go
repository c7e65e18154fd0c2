package deployments

import (
	"context"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type uploadBody struct {
	ID        upload.ID    `json:"id" example:"upl_25o5kzh3mc7yw4tn6pqd2xlfae"`
	SiteID    site.ID      `json:"siteId"`
	Kind      string       `json:"kind" enum:"output,source" doc:"output is published as it is; source is detected and built, like a commit."`
	Status    string       `json:"status" enum:"open,deployed"`
	Target    string       `json:"target" enum:"production,preview"`
	Branch    *string      `json:"branch" doc:"The branch whose preview address shows it."`
	Title     *string      `json:"title"`
	Files     int64        `json:"files"`
	Bytes     int64        `json:"bytes"`
	Missing   missingBody  `json:"missing" doc:"Contents that have to be sent."`
	Digest    *string      `json:"manifestSha256" doc:"Digest of the list of files; the same for the same files. Null until the manifest is sent."`
	Deploy    *string      `json:"deploymentId" doc:"The deployment that was made of it."`
	CreatedAt string       `json:"createdAt" format:"date-time"`
	ExpiresAt *string      `json:"expiresAt" format:"date-time" doc:"An open upload is deleted 24 hours after its last byte. Null once it is deployed."`
	Limits    uploadLimits `json:"limits"`
}

type missingBody struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

type uploadLimits struct {
	Files      int   `json:"files" doc:"Files of one upload."`
	Bytes      int64 `json:"bytes" doc:"Bytes of one upload."`
	FileBytes  int64 `json:"fileBytes" doc:"Bytes of one file."`
	BatchBytes int64 `json:"batchBytes" doc:"Bytes of one batch of blobs."`
	BatchFiles int   `json:"batchFiles" doc:"Blobs of one batch."`
}

func (a *API) uploadRoutes() {
	r := func(path, id, summary, doc string) contract.Route {
		return contract.Route{Path: path, ID: id, Tag: "Uploads", Summary: summary, Doc: doc, Scope: account.PreviewsWrite, Noun: "upload"}
	}
	create := r("/sites/{id}/uploads", "createUpload", "Open an upload",
		"Deploys a folder to a site without a repository: open an upload, send the manifest, send the blobs that are missing, "+
			"deploy. Production requires the scope `deployments:write`, a preview `previews:write`.")
	create.Status = 201
	contract.Post(a.API, create, a.createUpload)
	contract.Get(a.API, r("/uploads/{id}", "getUpload", "Read an upload", ""), a.getUpload)
	remove := r("/uploads/{id}", "deleteUpload", "Delete an open upload", "What was sent isn't deployed.")
	contract.Change(a.API, "DELETE", remove, a.deleteUpload)
	a.manifestRoute(r("/uploads/{id}/manifest", "putUploadManifest", "Send the list of files",
		"One line of JSON per file: `{\"path\": \"index.html\", \"sha256\": \"…\", \"size\": 1024}`, with `\"mode\": \"x\"` for "+
			"an executable file and `\"l\"` for a symbolic link, whose content is its target. "+
			"`Content-Encoding` may be gzip or zstd. Sending it again replaces it, until the upload is deployed. Counts against the "+
			"storage limit before any content is sent."))
	contract.Get(a.API, r("/uploads/{id}/missing", "getUploadMissing", "List missing blobs",
		"The contents that have to be sent: what neither the site's releases have nor you have uploaded within the last day."), a.listMissing)
	a.batchRoute(r("/uploads/{id}/blobs", "sendUploadBlobs", "Send blobs",
		"A batch of contents. For each: its SHA-256 (32 bytes), its length (8 bytes, big-endian), its bytes. What is counted as "+
			"stored is durable. A blob that doesn't match the manifest is refused; the others are stored."))
	a.blobRoute(r("/uploads/{id}/blobs/{sha256}", "putUploadBlob", "Send one blob",
		"The content of one file as the body, for example with `curl -T`."))
	a.partRoutes(r("/uploads/{id}/blobs/{sha256}", "", "", ""))
	deploy := r("/uploads/{id}/deploy", "deployUpload", "Deploy an upload",
		"Triggers a deployment of a complete upload. Deploying it again answers with the same deployment. 409 `upload_incomplete` "+
			"while blobs are missing.")
	deploy.Limited = true
	contract.PostPrepared(a.API, deploy, a.completeUpload, a.deployUpload)
	a.archiveRoute(r("/sites/{id}/deploy/archive", "deployArchive", "Deploy an archive",
		"Deploys a folder to a site without a repository in one request: `curl --data-binary @site.zip`. The body is a .zip, .tar, "+
			".tar.gz or .tar.zst with the limits of an upload. "+
			"If the archive has one folder at its top, its content is deployed. Version control, `node_modules`, `.env` files and "+
			"private keys are left out. "+
			"Production requires the scope `deployments:write`, a preview `previews:write`."))
}

// upload returns an upload that the caller may access.
func (a *API) upload(ctx context.Context, c account.Caller, id upload.ID) (upload.Upload, error) {
	u, err := a.Uploads.Get(ctx, c.Owner, id)
	if err != nil {
		return u, err
	}
	if err := c.RequireSite(u.Site); err != nil {
		return u, err
	}
	if u.Target == string(deployment.Production) {
		return u, c.RequireOn(account.DeploymentsWrite, u.Site)
	}
	return u, nil
}

type createUploadIn struct {
	contract.ByID[site.ID]
	Body struct {
		Kind   string `json:"kind" enum:"output,source" doc:"output: files that are ready to be published. source: a project that is detected and built."`
		Target string `json:"target,omitempty" enum:"production,preview" doc:"Default: production, and preview if a branch is named."`
		Branch string `json:"branch,omitempty" doc:"The branch whose preview address shows it."`
		Title  string `json:"title,omitempty" doc:"Title of the deployment, at most 200 characters."`
		Git    *struct {
			Commit  string `json:"commit,omitempty" doc:"Full id of a commit."`
			Message string `json:"message,omitempty"`
			Author  string `json:"author,omitempty"`
			Dirty   bool   `json:"dirty,omitempty" doc:"Whether there were changes beside the commit."`
		} `json:"git,omitempty" doc:"The commit that the files are of, as you claim. It is shown with the deployment."`
	}
}

func (a *API) createUpload(ctx context.Context, tx *db.Tx, c account.Caller, in *createUploadIn) (_ uploadBody, did audit.Event, _ error) {
	if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
		return uploadBody{}, did, err
	}
	b := in.Body
	n := upload.NewUpload{Kind: upload.Kind(b.Kind), Target: b.Target, Branch: b.Branch, Title: b.Title}
	if g := b.Git; g != nil {
		n.CommitHash, n.CommitMessage, n.CommitAuthor, n.Dirty = g.Commit, g.Message, g.Author, g.Dirty
	}
	u, err := a.Uploads.CreateTx(ctx, tx, c.Owner, in.ID, n)
	if err == nil && u.Target == string(deployment.Production) {
		err = c.RequireOn(account.DeploymentsWrite, in.ID)
	}
	did = audit.Event{Action: "upload.created", Subject: string(u.ID), Detail: string(in.ID)}
	return a.showUpload(u, upload.Missing{}), did, err
}

func (a *API) getUpload(ctx context.Context, c account.Caller, in *contract.ByID[upload.ID]) (uploadBody, error) {
	u, err := a.upload(ctx, c, in.ID)
	if err != nil {
		return uploadBody{}, err
	}
	missing, err := a.Uploads.MissingOf(ctx, u)
	return a.showUpload(u, missing), err
}

func (a *API) deleteUpload(
	ctx context.Context, tx *db.Tx, c account.Caller, in *contract.ByID[upload.ID],
) (_ contract.Message, did audit.Event, _ error) {
	if _, err := a.upload(ctx, c, in.ID); err != nil {
		return contract.Message{}, did, err
	}
	did = audit.Event{Action: "upload.deleted", Subject: string(in.ID)}
	return contract.Message{Message: "Upload deleted"}, did, a.Uploads.DeleteTx(ctx, tx, c.Owner, in.ID)
}

func (a *API) completeUpload(ctx context.Context, c account.Caller, in *contract.ByID[upload.ID]) (upload.Complete, error) {
	if _, err := a.upload(ctx, c, in.ID); err != nil {
		return upload.Complete{}, err
	}
	return a.Uploads.Complete(ctx, c.Owner, in.ID)
}

func (a *API) deployUpload(
	ctx context.Context,
	tx *db.Tx,
	c account.Caller,
	in *contract.ByID[upload.ID],
	whole upload.Complete,
) (_ contract.Triggered, did audit.Event, _ error) {
	d, err := a.Deployments.DeployUploadTx(ctx, tx, c.Owner, whole, deployment.ByAPI)
	if err == nil {
		err = contract.MayDeploy(c, d)
	}
	if err == nil {
		err = a.Deployments.LimitTx(ctx, tx, c, d)
	}
	did = audit.Event{Action: "deployment.triggered", Subject: string(d.ID)}
	return contract.Triggered{Message: "Deployment triggered", DeploymentID: d.ID, Status: string(d.Status)}, did, err
}

type listMissingIn struct {
	contract.ByID[upload.ID]
	After string         `query:"after" doc:"The blob after which the list goes on: next of the page before."`
	Limit contract.Whole `query:"limit" doc:"Blobs per page: 10,000 by default and at most."`
}

type missingBlob struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

func showMissing(c upload.Content) missingBlob { return missingBlob{c.Digest.String(), c.Size} }

type missingPage struct {
	Data []missingBlob `json:"data"`
	Next *string       `json:"next" doc:"Pass it as after for the next page. Null on the last one."`
}

func (a *API) listMissing(ctx context.Context, c account.Caller, in *listMissingIn) (missingPage, error) {
	u, err := a.upload(ctx, c, in.ID)
	if err != nil {
		return missingPage{}, err
	}
	var after blob.Digest
	if in.After != "" {
		if after, err = blob.ParseDigest(in.After); err != nil {
			return missingPage{}, fault.New(fault.Invalid, "invalid_after", "Invalid after", "after is next of the page before")
		}
	}
	limit, err := in.Limit.Parse("limit", contract.MaxMissing)
	if err != nil {
		return missingPage{}, err
	}
	list, more, err := a.Uploads.ListMissing(ctx, u, after, min(limit, contract.MaxMissing))
	if err != nil {
		return missingPage{}, err
	}
	out := missingPage{Data: contract.Each(list, showMissing)}
	if more {
		out.Next = &out.Data[len(out.Data)-1].SHA256
	}
	return out, nil
}

func (a *API) showUpload(u upload.Upload, m upload.Missing) uploadBody {
	l := a.Uploads.Limits()
	b := uploadBody{
		ID:        u.ID,
		SiteID:    u.Site,
		Kind:      string(u.Kind),
		Status:    string(u.Status),
		Target:    u.Target,
		Branch:    contract.Some(u.Branch),
		Title:     contract.Some(u.Title),
		Files:     u.Files,
		Bytes:     u.Bytes,
		Missing:   missingBody{m.Files, m.Bytes},
		Digest:    contract.Some(u.Manifest),
		Deploy:    contract.Some(string(u.Deployment)),
		CreatedAt: u.CreatedAt.String(),
		Limits:    uploadLimits{l.Files, l.Bytes, l.FileBytes, upload.MaxBatch, upload.MaxBatchFiles},
	}
	if u.Status == upload.Open {
		b.ExpiresAt = contract.When(u.ExpiresAt())
	}
	return b
}
