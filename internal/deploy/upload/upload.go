// Package upload owns deploying without Git: the files that a client uploads to a site, until a deployment has been made of them.
//
// A client opens an upload, sends the list of its files (the manifest), and then the contents that the service asks for. Contents
// are blobs, named by their SHA-256, and durable when they are acknowledged. Asked for is what this site's releases don't have, and
// what this owner hasn't sent within the last day: whether others store the same bytes can't be learned. Deploying an upload turns
// it into a deployment's source, a Tree, which takes the place of a commit.
//
// What rows refer to isn't swept, and the rows of uploads that nobody continues are deleted a day after their last byte. The package
// knows no Git and runs nothing.
package upload

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
)

// ID names an upload: "upl_" and 26 characters.
type ID = id.Upload

// Kind says what is uploaded.
type Kind string

// The kinds.
const (
	Output Kind = "output" // published as it is
	Source Kind = "source" // detected and built, as a commit is
)

// Status says whether an upload is still open.
type Status string

// The states.
const (
	Open     Status = "open"
	Deployed Status = "deployed" // a deployment was made of it
)

// Upload is one upload.
type Upload struct {
	ID            ID
	Site          site.ID
	Owner         account.OwnerID
	Kind          Kind
	Status        Status
	Target        string // production or preview
	Branch        string
	Title         string
	CommitHash    string // this and the next three as the client claims
	CommitMessage string
	CommitAuthor  string
	Dirty         bool // there were changes beside the commit
	Manifest      string
	Files         int64
	Bytes         int64
	Deployment    id.Deployment // the first that was made of it
	CreatedAt     db.Time
	TouchedAt     db.Time // when the last byte came

	needed      string
	neededBytes int64
}

// ExpiresAt returns when an open upload ends, unless something more arrives.
func (u Upload) ExpiresAt() db.Time { return u.TouchedAt.Add(Patience) }

// Patience is how long an open upload waits for its next byte.
const Patience = 24 * time.Hour

// The bounds of what a client sends.
const (
	MaxBatch      = 64 << 20 // bytes of one batch of blobs
	MaxBatchFiles = 5000     // blobs of one batch
	maxOpen       = 50       // uploads of an owner that are open
)

// Limits holds what one upload may have.
type Limits struct {
	Files     int
	Bytes     int64
	FileBytes int64
}

// Config holds what Uploads needs.
type Config struct {
	DB       *db.DB
	Sites    *site.Sites
	Releases *release.Releases
	Blobs    *blob.Store
	Limits   *limits.Limits // Optional: without it the service's own.
	Scratch  string         // directory for what is on its way: archives, and parts of files. Optional: "" means the system's.
	Log      *slog.Logger   // Optional.
}

// Uploads is the service. It is safe for concurrent use.
type Uploads struct {
	c         Config
	receiving *fair.Pool
	unpacking *fair.Pool
	arriving  arriving
}

// New returns Uploads. It starts nothing: Work registers its job.
func New(c Config) *Uploads {
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	// What an open upload will have, and the source that the next build of the site is made of.
	c.Limits.CountRows(limits.Storage, `
		SELECT COALESCE(CAST(SUM(CASE WHEN status = 'open' THEN needed_bytes WHEN kind = 'source' THEN bytes ELSE 0 END) AS BIGINT), 0)
		FROM uploads WHERE owner_id = $1`)
	return &Uploads{
		c: c,
		// share: total 16 requests that send files, or read lists of them, at once; owner 8, and 4 of them for one site; edge 64 wait, 16 of one owner, then 429
		receiving: fair.New(fair.Config{Places: 16, Owner: 8, Site: 4, Waiting: 64, OwnerWaiting: 16}),
		// share: total 4 archives that are unpacked at once, each at most as large as an upload may be; owner 2, one of a site; edge 16 wait, 4 of one owner, then 429
		unpacking: fair.New(fair.Config{Places: 4, Owner: 2, Site: 1, Waiting: 16, OwnerWaiting: 4}),
	}
}

// Limits returns what one upload may have.
func (u *Uploads) Limits() Limits {
	r := u.c.Releases
	return Limits{Files: r.MaxFiles, Bytes: r.MaxBytes, FileBytes: r.MaxFile}
}

const columns = `id, site_id, owner_id, kind, status, target, branch, title, commit_hash, commit_message, commit_author, dirty,
	manifest, needed, files, bytes, needed_bytes, deployment_id, created_at, touched_at`

func scan(row db.Scanner) (x Upload, err error) {
	err = row.Scan(&x.ID, &x.Site, &x.Owner, &x.Kind, &x.Status, &x.Target, &x.Branch, &x.Title, &x.CommitHash, &x.CommitMessage,
		&x.CommitAuthor, &x.Dirty, &x.Manifest, &x.needed, &x.Files, &x.Bytes, &x.neededBytes, &x.Deployment, &x.CreatedAt, &x.TouchedAt)
	return x, err
}

// Get returns the owner's upload, or a NotFound fault, which one that has expired is too.
func (u *Uploads) Get(ctx context.Context, owner account.OwnerID, id ID) (Upload, error) {
	return u.get(ctx, u.c.DB, owner, id, "")
}

func (u *Uploads) get(ctx context.Context, r db.Reader, owner account.OwnerID, id ID, lock string) (Upload, error) {
	x, err := scan(r.QueryRow(ctx, `SELECT `+columns+` FROM uploads WHERE id = $1 AND owner_id = $2`+lock, id, owner))
	if errors.Is(err, sql.ErrNoRows) || err == nil && x.Status == Open && x.ExpiresAt() < db.Now() {
		return Upload{}, fault.Missing("upload")
	}
	if err != nil {
		return Upload{}, fmt.Errorf("read upload: %w", err)
	}
	return x, nil
}

// lockTx is Get for who is about to change it: nobody else does until the transaction ends.
func (u *Uploads) lockTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Upload, error) {
	if tx.Single() {
		return u.get(ctx, tx, owner, id, "")
	}
	return u.get(ctx, tx, owner, id, " FOR UPDATE")
}

func (u *Uploads) mustBeOpen(x Upload) error {
	if x.Status == Open {
		return nil
	}
	return fault.New(fault.Conflict, "upload_deployed", "The upload is already deployed",
		"open another upload to deploy other files")
}
