package upload

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// Complete is an upload without missing contents.
type Complete struct {
	id       ID
	manifest string
}

// Complete checks that an upload has all its contents. Call it before the transaction that deploys it.
func (u *Uploads) Complete(ctx context.Context, owner account.OwnerID, id ID) (Complete, error) {
	x, err := u.Get(ctx, owner, id)
	if err != nil {
		return Complete{}, err
	}
	return u.complete(ctx, owner, x)
}

// complete is Complete for an upload that was already read and may have changed since.
func (u *Uploads) complete(ctx context.Context, owner account.OwnerID, x Upload) (Complete, error) {
	if x.Status == Deployed {
		return Complete{x.ID, x.Manifest}, nil
	}
	release, err := u.take(ctx, x)
	if err != nil {
		return Complete{}, err
	}
	defer release()
	_, list, err := u.missing(ctx, x)
	if err != nil {
		return Complete{}, err
	}
	if m := Sum(list); m.Files > 0 {
		// After it was deployed, what it received is no longer recorded; the manifest says what it has.
		if now, err := u.Get(ctx, owner, x.ID); err != nil || now.Status == Deployed {
			return Complete{x.ID, now.Manifest}, err
		}
		return Complete{}, fault.New(fault.Conflict, "upload_incomplete", "The upload is incomplete",
			fmt.Sprintf("%d files with %d bytes are missing: GET /uploads/%s/missing lists them", m.Files, m.Bytes, x.ID))
	}
	return Complete{x.ID, x.Manifest}, nil
}

// TakeTx marks a complete upload as deployed and returns it. If it was deployed before, it is returned unchanged.
func (u *Uploads) TakeTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, c Complete) (Upload, error) {
	x, err := u.lockTx(ctx, tx, owner, c.id)
	if err != nil || x.Status == Deployed {
		return x, err
	}
	if x.Manifest != c.manifest || x.needed == pendingList {
		return x, fault.New(fault.Conflict, "upload_incomplete", "The upload's manifest has changed",
			"check what is missing, and deploy again")
	}
	// Its own storage is counted already, but others may have used up the rest since.
	if err := u.c.Limits.RequireTx(ctx, tx, owner, limits.Storage, 0); err != nil {
		return x, err
	}
	if _, err := tx.Exec(ctx, `UPDATE uploads SET status = $2, touched_at = $3 WHERE id = $1`, x.ID, Deployed, db.Now()); err != nil {
		return x, fmt.Errorf("take upload: %w", err)
	}
	// From now on the manifest alone decides what is kept; contents of earlier manifests are released.
	if err := forgetReceivedTx(ctx, tx, x.ID); err != nil {
		return x, fmt.Errorf("take upload: %w", err)
	}
	x.Status = Deployed
	return x, nil
}

// DeployedTx records the first deployment of an upload.
func (u *Uploads) DeployedTx(ctx context.Context, tx *db.Tx, id ID, deployment id.Deployment) error {
	if _, err := tx.Exec(ctx, `UPDATE uploads SET deployment_id = $2 WHERE id = $1 AND deployment_id = ''`, id, deployment); err != nil {
		return fmt.Errorf("note deployment of upload: %w", err)
	}
	return nil
}

// LastTx returns the upload that a site's production, or the preview of a branch, was last deployed from, or a Conflict
// fault. A preview's upload is stored for a day, and longer only while it is the site's newest preview.
func (u *Uploads) LastTx(ctx context.Context, tx *db.Tx, s site.Site, target, branch string) (Upload, error) {
	where, args := ``, []any{s.ID, target}
	if target == "preview" {
		where, args = ` AND branch = $3`, append(args, branch)
	}
	x, err := scan(tx.QueryRow(ctx, `
		SELECT `+columns+` FROM uploads WHERE site_id = $1 AND status = 'deployed' AND target = $2`+where+`
		ORDER BY deployment_id DESC LIMIT 1`, args...))
	if errors.Is(err, sql.ErrNoRows) {
		f := fault.New(fault.Conflict, "nothing_uploaded", "Nothing was uploaded to the site yet",
			"deploy a folder with slipway deploy")
		if target == "preview" {
			f.Message, f.Details = "No upload to this preview is stored", "deploy a folder with slipway deploy --preview "+branch
		}
		return x, f
	}
	if err != nil {
		return x, fmt.Errorf("find last upload: %w", err)
	}
	return x, nil
}

// OfDeploymentTx returns the upload of an earlier deployment of a site, or a Conflict fault if it is no longer stored.
func (u *Uploads) OfDeploymentTx(ctx context.Context, tx *db.Tx, s site.Site, id ID) (Upload, error) {
	x, err := scan(tx.QueryRow(ctx, `SELECT `+columns+` FROM uploads WHERE id = $1 AND site_id = $2`, id, s.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return x, fault.New(fault.Conflict, "upload_expired", "The deployment's files are no longer stored", "upload them again")
	}
	if err != nil {
		return x, fmt.Errorf("find upload: %w", err)
	}
	return x, nil
}
