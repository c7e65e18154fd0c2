package upload

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"slipway/internal/git/fetch"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// NewUpload holds the settings of a new upload. All fields but Kind are optional.
type NewUpload struct {
	Kind          Kind
	Target        string // default: production, or preview if a branch is set
	Branch        string // whose preview address shows it
	Title         string // shown in the list of deployments
	CommitHash    string
	CommitMessage string
	CommitAuthor  string
	Dirty         bool
}

// PreviewBranch is the branch of previews that name none.
const PreviewBranch = "preview"

// CreateTx starts an upload to the owner's site.
func (u *Uploads) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, n NewUpload) (Upload, error) {
	s, err := u.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Upload{}, err
	}
	if err := acceptsUploads(s); err != nil {
		return Upload{}, err
	}
	x, err := check(n)
	if err != nil {
		return Upload{}, err
	}
	var open int
	err = tx.QueryRow(ctx, `SELECT count(*) FROM uploads WHERE owner_id = $1 AND touched_at >= $2 AND status = 'open'`,
		owner, db.Now().Add(-Patience)).Scan(&open)
	if err != nil {
		return Upload{}, fmt.Errorf("count open uploads: %w", err)
	}
	if open >= maxOpen {
		return Upload{}, fault.New(fault.Conflict, "too_many_uploads", "Too many open uploads",
			fmt.Sprintf("an account has at most %d; deploy or delete some, or wait until they expire", maxOpen))
	}
	x.ID, x.Site, x.Owner, x.Status, x.CreatedAt = db.ID[ID]("upl"), id, owner, Open, db.Now()
	x.TouchedAt = x.CreatedAt
	_, err = tx.Exec(ctx, `
		INSERT INTO uploads (id, site_id, owner_id, kind, status, target, branch, title, commit_hash, commit_message, commit_author, dirty,
			manifest, needed, files, bytes, needed_bytes, deployment_id, created_at, touched_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, '', '', 0, 0, 0, '', $13, $13)`,
		x.ID, x.Site, x.Owner, x.Kind, x.Status, x.Target, x.Branch, x.Title, x.CommitHash, x.CommitMessage, x.CommitAuthor, x.Dirty,
		x.CreatedAt)
	if err != nil {
		return Upload{}, fmt.Errorf("insert upload: %w", err)
	}
	return x, nil
}

// acceptsUploads returns a fault for sites whose files come from elsewhere.
func acceptsUploads(s site.Site) error {
	if s.Source() == site.SourceUpload {
		return nil
	}
	f := fault.New(fault.Conflict, "site_has_repository", "The site is deployed from its Git repository",
		"push to deploy it, or remove its repository to upload files")
	if s.Type == site.WordPress {
		f.Message, f.Details = "A WordPress site takes no uploads", "create a static site to deploy files"
	}
	return f
}

// check validates the settings and returns the upload.
func check(n NewUpload) (Upload, error) {
	bad := func(message, details, received, code string) (Upload, error) {
		return Upload{}, fault.New(fault.Invalid, code, message, details).Got(text.Clip(received, 200))
	}
	if n.Kind != Output && n.Kind != Source {
		return bad("Invalid upload kind", "kind must be output or source", string(n.Kind), "invalid_kind")
	}
	switch n.Target {
	case "":
		n.Target = "production"
		if n.Branch != "" {
			n.Target = "preview"
		}
	case "production", "preview":
	default:
		return bad("Invalid deployment target", "target must be production or preview", n.Target, "invalid_target")
	}
	if n.Branch == "" && n.Target == "preview" {
		n.Branch = PreviewBranch
	}
	if n.Branch != "" {
		if err := fetch.CheckBranch(n.Branch); err != nil {
			return Upload{}, err
		}
	}
	if utf8.RuneCountInString(n.Title) > 200 || strings.ContainsRune(n.Title, 0) {
		return bad("The title is too long", "title has at most 200 characters", n.Title, "invalid_title")
	}
	if n.CommitHash != "" {
		if err := fetch.CheckCommit(n.CommitHash); err != nil {
			return Upload{}, err
		}
	}
	clip := func(s string, most int) string {
		s = strings.TrimSpace(strings.Map(func(r rune) rune {
			if r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
				return -1
			}
			return r
		}, s))
		if len(s) > most {
			s = strings.ToValidUTF8(s[:most], "")
		}
		return s
	}
	return Upload{
		Kind: n.Kind, Target: n.Target, Branch: n.Branch, Title: n.Title, Dirty: n.Dirty,
		CommitHash: n.CommitHash, CommitMessage: clip(n.CommitMessage, 4<<10), CommitAuthor: clip(n.CommitAuthor, 200),
	}, nil
}

// DeleteTx deletes an open upload. Deployed uploads expire by themselves.
func (u *Uploads) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	x, err := u.lockTx(ctx, tx, owner, id)
	if err == nil {
		err = u.mustBeOpen(x)
	}
	if err != nil {
		return err
	}
	return deleteTx(ctx, tx, id)
}

func deleteTx(ctx context.Context, tx *db.Tx, id ID) error {
	err := forgetReceivedTx(ctx, tx, id)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM uploads WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("delete upload: %w", errors.Join(err))
	}
	return nil
}

// forgetReceivedTx deletes the records of what was received for an upload.
func forgetReceivedTx(ctx context.Context, tx *db.Tx, id ID) error {
	_, err := tx.Exec(ctx, `DELETE FROM upload_batches WHERE upload_id = $1`, id)
	if err == nil {
		_, err = tx.Exec(ctx, `DELETE FROM upload_parts WHERE upload_id = $1`, id)
	}
	return err
}
