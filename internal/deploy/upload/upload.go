// Package upload owns deployments without Git: the files that a client uploads to a site.
//
// A client opens an upload, sends the list of its files (the manifest), and then the contents that the service asks
// for. Contents are blobs, identified by their SHA-256, and durable once acknowledged. The service doesn't ask for
// contents that this site's releases have or that this owner sent within the last day. It never skips contents because
// another owner has them, so that clients can't find out what others store. Deploying an upload turns it into a
// deployment's source, a [Tree], which replaces a commit.
//
// Garbage collection keeps what rows refer to, and the rows of abandoned uploads are deleted a day after their last
// byte.
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

// ID identifies an upload: "upl_" and 26 characters.
type ID = id.Upload

// Kind is the kind of an upload.
type Kind string

// The kinds.
const (
	Output Kind = "output" // published as it is
	Source Kind = "source" // detected and built like a commit
)

// Status says whether an upload is still open.
type Status string

// The states.
const (
	Open     Status = "open"
	Deployed Status = "deployed" // a deployment was made from it
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
	CommitHash    string // this and the next three are the client's claims
	CommitMessage string
	CommitAuthor  string
	Dirty         bool // there were uncommitted changes
	Manifest      string
	Files         int64
	Bytes         int64
	Deployment    id.Deployment // the first made from it
	CreatedAt     db.Time
	TouchedAt     db.Time // when the last byte arrived

	needed      string
	neededBytes int64
}

// ExpiresAt returns when an open upload expires if nothing more arrives.
func (u Upload) ExpiresAt() db.Time { return u.TouchedAt.Add(Patience) }

// Patience is how long an open upload waits for its next byte.
const Patience = 24 * time.Hour

// Limits of requests.
const (
	MaxBatch      = 64 << 20 // bytes per batch of blobs
	MaxBatchFiles = 5000     // blobs per batch
	maxOpen       = 50       // open uploads per owner
)

// Limits caps one upload.
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
	Limits   *limits.Limits // Optional: nil means the defaults.
	Scratch  string         // directory for temporary files: archives and parts. Optional: "" means the system's.
	Log      *slog.Logger   // Optional.
}

// Uploads receives uploads. It is safe for concurrent use.
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
	// The storage that open uploads will need, and the sources that the sites' next builds use.
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

// Limits returns the limits of one upload.
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

// Get returns the owner's upload, or a NotFound fault, also for an expired one.
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

// lockTx is Get with a lock on the row until the transaction ends.
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
