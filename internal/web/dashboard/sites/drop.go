package sites

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"slipway/internal/deploy/deployment"
	"slipway/internal/deploy/upload"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

// dropped is a received archive.
type dropped struct {
	upload upload.Upload
	left   []upload.Left
}

// dropTime limits the deletion of an upload that isn't deployed.
const dropTime = 10 * time.Second

// receiveDropped stores a form's archive during its upload: a chosen file, or a folder archived by drop.js.
func (d *Pages) receiveDropped(ctx context.Context, q *shell.Request, file io.Reader) (any, func(), error) {
	n := upload.NewUpload{Kind: upload.Source, Title: strings.TrimSpace(q.Value("title"))}
	if q.Checked("prebuilt") {
		n.Kind = upload.Output
	}
	var u upload.Upload
	err := d.DB.Write(ctx, func(tx *db.Tx) (err error) {
		u, err = d.Uploads.CreateTx(ctx, tx, q.Caller.Owner, site.ID(q.PathValue("id")), n)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	drop := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
		defer cancel()
		// If this fails, it is deleted a day later.
		_ = d.DB.Write(ctx, func(tx *db.Tx) error { return d.Uploads.DeleteTx(ctx, tx, q.Caller.Owner, u.ID) })
	}
	u, left, err := d.Uploads.ReceiveArchive(ctx, q.Caller.Owner, u.ID, file)
	if err != nil {
		drop()
		if f := fault.As(err); f != nil && f.Kind == fault.Media {
			err = fault.New(fault.Invalid, f.Code, "The file is not an archive", "choose a .zip, .tar, .tar.gz or .tar.zst")
		}
		return nil, nil, err
	}
	return dropped{u, left}, drop, nil
}

// deployDropped deploys the received archive.
func (d *Pages) deployDropped(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	got, ok := q.Received.(dropped)
	if !ok {
		if _, err := d.Sites.Get(ctx, q.Caller.Owner, site.ID(q.PathValue("id"))); err != nil {
			return shell.Answer{}, err
		}
		return shell.Answer{}, fault.New(fault.Invalid, "empty_upload", "No file is selected",
			"choose a .zip, .tar, .tar.gz or .tar.zst")
	}
	whole, err := d.Uploads.Complete(ctx, q.Caller.Owner, got.upload.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	var x deployment.Deployment
	err = d.ActOn(ctx, q, func(tx *db.Tx) (_ audit.Event, err error) {
		x, err = d.Deployments.DeployUploadTx(ctx, tx, q.Caller.Owner, whole, deployment.ByDashboard)
		if err == nil {
			err = d.Deployments.LimitTx(ctx, tx, q.Caller, x)
		}
		return audit.Event{Action: "deployment.triggered", Subject: string(x.ID)}, err
	})
	return shell.GoTo(DeploymentPath(site.ID(q.PathValue("id")), x.ID), leftOut(got.left)), err
}

// leftOut lists skipped files in a sentence, or returns "".
func leftOut(list []upload.Left) string {
	if len(list) == 0 {
		return ""
	}
	var names []string
	for _, l := range list[:min(3, len(list))] {
		names = append(names, fmt.Sprintf("%s (%s)", shell.Short(60, l.Path), l.Why))
	}
	if more := len(list) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return "Not deployed: " + strings.Join(names, ", ")
}
