package deployments

import (
	"context"
	"crypto/sha256"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/api/contract"
)

type archiveIn struct {
	contract.ByID[site.ID]
	Kind   string `query:"kind" enum:"output,source" doc:"source, the default: a project that is detected and built. output: files that are ready to be published."`
	Target string `query:"target" enum:"production,preview" doc:"Default: production, and preview if a branch is named."`
	Branch string `query:"branch" doc:"The branch whose preview address shows it."`
	Title  string `query:"title" doc:"Title of the deployment, at most 200 characters."`
}

type archiveBody struct {
	contract.Triggered
	Files int64      `json:"files" doc:"Files that are deployed."`
	Bytes int64      `json:"bytes"`
	Left  []leftBody `json:"leftOut" doc:"Files that are not deployed, the first 50."`
}

type leftBody struct {
	Path   string `json:"path"`
	Reason string `json:"reason" example:"secrets"`
}

// maxLeft caps how many skipped files are listed.
const maxLeft = 50

// archiveRoute registers the deployment of an archive, which is read while it arrives.
func (a *API) archiveRoute(r contract.Route) {
	r.Method, r.Status, r.Raw, r.Limited = http.MethodPost, http.StatusOK, true, true
	op := a.Operation(r, reflect.TypeFor[archiveBody]())
	op.Middlewares = nil // don't read the body as JSON
	op.Responses["409"] = &huma.Response{}
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
	for _, kind := range []string{"application/zip", "application/gzip", "application/zstd", "application/x-tar"} {
		op.RequestBody.Content[kind] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	contract.Writes(a.API, r, op, func(_ context.Context, r contract.Route, in *archiveIn) (func(huma.Context), error) {
		return func(hctx huma.Context) {
			req, w := humago.Unwrap(hctx)
			conn := http.NewResponseController(w)
			defer func() { _ = conn.SetReadDeadline(time.Time{}) }()
			out, err := a.deployArchive(hctx.Context(), r, in, &paced{Reader: req.Body, conn: conn, begun: time.Now()})
			if err != nil {
				_ = conn.SetReadDeadline(time.Now().Add(headStart))
				contract.Discard(req)
				a.Fail(w, req, err)
				return
			}
			w.Header().Set("Content-Type", out.ContentType)
			if out.Replayed != "" {
				w.Header().Set("Idempotent-Replayed", out.Replayed)
			}
			w.WriteHeader(out.Status)
			_, _ = w.Write(out.Body)
		}, nil
	})
}

// deployArchive uploads an archive and deploys it. With an Idempotency-Key, the same archive is deployed once.
func (a *API) deployArchive(ctx context.Context, r contract.Route, in *archiveIn, body *paced) (*contract.Reply, error) {
	c, err := r.Permit(contract.From(ctx).Caller)
	if err != nil {
		return nil, err
	}
	k, print, err := r.Once(ctx, c)
	if err != nil {
		return nil, err
	}
	n := upload.NewUpload{Kind: upload.Source, Target: in.Target, Branch: in.Branch, Title: in.Title}
	if in.Kind != "" {
		n.Kind = upload.Kind(in.Kind)
	}
	var u upload.Upload
	err = a.DB.Write(ctx, func(tx *db.Tx) error {
		if err := a.Allowed(ctx, tx, c, in.ID); err != nil {
			return err
		}
		u, err = a.Uploads.CreateTx(ctx, tx, c.Owner, in.ID, n)
		if err == nil && u.Target == string(deployment.Production) {
			err = c.RequireOn(account.DeploymentsWrite, in.ID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	deployed := false
	defer func() {
		if deployed {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), contract.HandlerTimeout)
		defer cancel()
		// If this fails, it is deleted a day later.
		_ = a.DB.Write(ctx, func(tx *db.Tx) error { return a.Uploads.DeleteTx(ctx, tx, c.Owner, u.ID) })
	}()
	u, left, err := a.Uploads.ReceiveArchive(ctx, c.Owner, u.ID, body)
	if err != nil {
		return nil, err
	}
	if err := a.Holds(ctx, c); err != nil { // the key may have been revoked while the body arrived
		return nil, err
	}
	whole, err := a.Uploads.Complete(ctx, c.Owner, u.ID)
	if err != nil {
		return nil, err
	}
	// The archive's content is part of the idempotent request.
	print = sha256.Sum256(append(print[:], u.Manifest...))
	kept, replayed, err := a.Answers.Once(ctx, k, print, func(tx *db.Tx) ([]byte, error) {
		if err := a.HoldTx(ctx, tx, c); err != nil {
			return nil, err
		}
		d, err := a.Deployments.DeployUploadTx(ctx, tx, c.Owner, whole, deployment.ByAPI)
		if err == nil {
			err = a.Deployments.LimitTx(ctx, tx, c, d)
		}
		if err != nil {
			return nil, err
		}
		did := audit.Event{Action: "deployment.triggered", Subject: string(d.ID)}
		if err := a.Accounts.AuditTx(ctx, tx, c.Actor(contract.From(ctx).Addr), did); err != nil {
			return nil, err
		}
		named := contract.Each(left[:min(maxLeft, len(left))], func(l upload.Left) leftBody { return leftBody{l.Path, l.Why} })
		return r.Keep(archiveBody{
			contract.Triggered{Message: "Deployment triggered", DeploymentID: d.ID, Status: string(d.Status)}, u.Files, u.Bytes, named,
		})
	})
	deployed = err == nil && !replayed
	return contract.Unkeep(kept, replayed, err)
}
