// Package backup owns backups of sites: taking them, their schedule and retention, verifying
// that they can be restored, and restoring them.
//
// A backup is a manifest in a repository: settings and variables, the release and the
// program that the site serves (by the digests of their blobs), the files of its storage
// folders and the dumps of its databases, all from one moment. Content of earlier
// backups is not stored again. Taking, verifying and restoring are jobs, which are repeated
// after a crash; a restore changes nothing of a site until all of its data is ready.
// A copy of the whole installation (TakeCopy, OpenCopy) is a manifest too, in the same
// repository or another one, which lists its copies itself, so they can be found if nothing
// else is left. The package never serves anything, and knows storage and programs only through
// the interfaces of parts.go.
package backup

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"slipway/internal/backup/repository"
	"slipway/internal/backup/snapshot"
	"slipway/internal/build/bundle"
	"slipway/internal/build/release"
	"slipway/internal/deploy/deploy"
	"slipway/internal/platform/blob"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/program/placement"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/webhook"
)

// ID names a backup: "bkp_" and 26 characters.
type ID = snapshot.ID

// Type says why a backup was taken.
type Type string

// The types.
const (
	Manual        Type = "manual"
	Scheduled     Type = "scheduled"
	BeforeUpdate  Type = "before_update"
	BeforeRestore Type = "before_restore"
	BeforeDelete  Type = "before_delete"
)

// Types are all there are.
var Types = []Type{Manual, Scheduled, BeforeUpdate, BeforeRestore, BeforeDelete}

// Status says where a backup stands.
type Status string

// The states. The last two are for ever.
const (
	Pending   Status = "pending"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
)

// What a backup may include.
const (
	Settings  = "config"
	Files     = "files"
	Databases = "database"
)

var parts = []string{Settings, Files, Databases}

// keepAutomatic is how long a backup stays that was taken before something else.
const keepAutomatic = 30 * 24 * time.Hour

// Backup is one backup as its owner sees it.
type Backup struct {
	ID          ID
	Owner       account.OwnerID
	Site        site.ID // which may be deleted
	SiteName    string
	Type        Type
	Status      Status
	Includes    []string
	Note        string
	Size        int64 // bytes that it holds; of a running one, that were read so far
	Stored      int64 // bytes that it added to the repository
	Checksum    string
	VerifiedAt  db.Time
	Answer      string // how the site answered when it ran from the copy that was verified, in words
	Error       string
	CreatedAt   db.Time
	CompletedAt db.Time
	ExpiresAt   db.Time // 0: it stays until it is deleted

	manifest, base string
	thenDelete     operation.ID
	moved          bool // it was another owner's, with a transferred site
}

// Config holds what Backups needs. Repository may be nil: then Why says in words why there
// are no backups.
type Config struct {
	DB          *db.DB
	Limits      *limits.Limits
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Hooks       *webhook.Webhooks
	Notify      *notify.Notifications // Optional: nobody is told of failed backups.
	Operations  *operation.Operations
	Blobs       *blob.Store
	Repository  *repository.Repository
	Why         string
	Scratch     string // directory for what is restored to be looked at; ours alone
	Log         *slog.Logger

	Storage   snapshot.Storage        // nil: this node runs no programs
	Places    *placement.Places       // nil: there is no other node
	Databases snapshot.DatabaseServer // nil: there are none
	WordPress WordPress               // or Connect's
	Programs  Programs                // or Connect's

	// Installation opens the copies of the whole installation. Every is how often it is backed up; 0: by
	// hand alone.
	Installation Installation
	Every        time.Duration
	// Alarm is how long a site with a schedule may be without a verified backup. Optional: 0
	// means three of its intervals. Mail tells its owner then. Optional.
	Alarm time.Duration
	Mail  account.Mailer
	// Operators are told of problems with the backups of the installation. Optional.
	Operators Operators
}

// Operators are told by mail. Accounts tell them.
type Operators interface {
	TellOperatorsTx(ctx context.Context, tx *db.Tx, subject, text, path string) error
}

// Installation is the whole of what is installed.
type Installation interface {
	// Open returns the repository at a place, the one of the settings where that is empty, and what the
	// installation consists of.
	Open(to string) (*repository.Repository, Source, error)
}

// Backups owns all backups. It is safe for concurrent use.
type Backups struct {
	c        Config
	releases func(*blob.Store) *release.Releases
	bundles  func(*blob.Store, string) (*bundle.Bundles, error)
	brief    time.Duration // 0: briefTime; tests give a machine that is busy more
}

// Connect tells of what stands on backups. It belongs before Work.
func (s *Backups) Connect(w WordPress, p Programs) { s.c.WordPress, s.c.Programs = w, p }

// New returns Backups. It starts nothing: Work registers its jobs.
func New(c Config) *Backups {
	c.Limits = cmp.Or(c.Limits, limits.New(limits.Settings{}))
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Limits.CountRows(limits.Backups, `SELECT COALESCE(SUM(stored_bytes), 0) FROM backups WHERE owner_id = $1`)
	return &Backups{
		c:        c,
		releases: func(s *blob.Store) *release.Releases { return release.New(release.Config{Blobs: s, Log: c.Log}) },
		bundles: func(s *blob.Store, dir string) (*bundle.Bundles, error) {
			return bundle.New(bundle.Config{Blobs: s, Dir: dir, Log: c.Log})
		},
	}
}

const columns = `id, owner_id, site_id, site_name, type, status, includes, note, size_bytes, stored_bytes, progress, manifest, checksum, base, then_delete, verified_at, answer, error, created_at, completed_at, expires_at, moved`

func scan(row db.Scanner) (b Backup, err error) {
	var includes string
	var progress int64
	err = row.Scan(
		&b.ID,
		&b.Owner,
		&b.Site,
		&b.SiteName,
		&b.Type,
		&b.Status,
		&includes,
		&b.Note,
		&b.Size,
		&b.Stored,
		&progress,
		&b.manifest,
		&b.Checksum,
		&b.base,
		&b.thenDelete,
		&b.VerifiedAt,
		&b.Answer,
		&b.Error,
		&b.CreatedAt,
		&b.CompletedAt,
		&b.ExpiresAt,
		&b.moved,
	)
	if errors.Is(err, sql.ErrNoRows) {
		return Backup{}, fault.Missing("backup")
	}
	if err != nil {
		return Backup{}, fmt.Errorf("read backup: %w", err)
	}
	b.Includes = strings.Split(includes, ",")
	if b.Status == Running {
		b.Size = progress
	}
	return b, nil
}

// Get returns the owner's backup, or a NotFound fault.
func (s *Backups) Get(ctx context.Context, owner account.OwnerID, id ID) (Backup, error) {
	return s.owned(ctx, s.c.DB, owner, id)
}

// GetTx is Get inside the caller's transaction.
func (s *Backups) GetTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) (Backup, error) {
	return s.owned(ctx, tx, owner, id)
}

func (s *Backups) owned(ctx context.Context, r db.Reader, owner account.OwnerID, id ID) (Backup, error) {
	return scan(r.QueryRow(ctx, `SELECT `+columns+` FROM backups WHERE id = $1 AND owner_id = $2`, id, owner))
}

// Filter narrows a list. Zero fields don't.
type Filter struct {
	Site  site.ID
	Only  []site.ID // nil: all
	Type  Type
	Page  int // from 1
	Limit int // 1 to 100
}

// List returns one page of the owner's backups, those of deleted sites too, the newest
// first, and how many there are.
func (s *Backups) List(ctx context.Context, owner account.OwnerID, f Filter) (list []Backup, total int, err error) {
	var args db.Args
	where := ` WHERE owner_id = ` + args.Add(owner)
	if f.Site != "" {
		where += ` AND site_id = ` + args.Add(f.Site)
	}
	if f.Only != nil {
		where += ` AND site_id IN (` + db.AddList(&args, f.Only) + `)`
	}
	if f.Type != "" {
		if !slices.Contains(Types, f.Type) {
			return nil, 0, &fault.Error{
				Kind:     fault.Invalid,
				Message:  "Invalid type",
				Details:  "type must be manual, scheduled, before_update, before_restore or before_delete",
				Received: string(f.Type),
			}
		}
		where += ` AND type = ` + args.Add(f.Type)
	}
	err = s.c.DB.Snapshot(ctx, func(r db.Reader) error {
		if err := r.QueryRow(ctx, `SELECT count(*) FROM backups`+where, args...).Scan(&total); err != nil {
			return fmt.Errorf("count backups: %w", err)
		}
		rows, err := r.Query(
			ctx,
			`SELECT `+columns+` FROM backups`+where+` ORDER BY id DESC LIMIT `+args.Add(f.Limit)+` OFFSET `+args.Add((f.Page-1)*f.Limit),
			args...)
		list, err = db.Collect(rows, err, scan)
		return err
	})
	return list, total, err
}

// maxDeleted is how many deleted sites are listed.
const maxDeleted = 100

// Deleted returns the owner's backups of sites that were deleted with them, the newest first.
func (s *Backups) Deleted(ctx context.Context, owner account.OwnerID) ([]Backup, error) {
	rows, err := s.c.DB.Query(ctx, `
		SELECT `+columns+` FROM backups
		WHERE owner_id = $1 AND type = 'before_delete' AND status = 'completed'
		AND NOT EXISTS (SELECT 1 FROM open_sites WHERE open_sites.id = backups.site_id)
		ORDER BY id DESC LIMIT $2`, owner, maxDeleted)
	return db.Collect(rows, err, scan)
}

// NewBackup says what to back up.
type NewBackup struct {
	Type     Type
	Includes []string // Optional: all there is.
	Note     string   // Optional.

	unlimited bool // the owner's limit doesn't count
}

// maxNote is how many characters a note has at most.
const maxNote = 500

// maxManual is how many backups of a site people can have asked for: nothing expires those.
const maxManual = 500

// CreateTx writes a pending backup of the owner's site and the job that takes it. While
// one waits, another one of the same kind is refused.
func (s *Backups) CreateTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id site.ID, n NewBackup) (Backup, error) {
	x, err := s.c.Sites.LockTx(ctx, tx, owner, id)
	if err != nil {
		return Backup{}, err
	}
	return s.createTx(ctx, tx, x, n, "")
}

func (s *Backups) createTx(ctx context.Context, tx *db.Tx, x site.Site, n NewBackup, thenDelete operation.ID) (Backup, error) {
	if err := s.possible(); err != nil {
		return Backup{}, err
	}
	includes, err := checkIncludes(n.Includes)
	if err != nil {
		return Backup{}, err
	}
	if len([]rune(n.Note)) > maxNote {
		return Backup{}, fault.New(fault.Invalid, "invalid_note", "The note is too long",
			fmt.Sprintf("note has at most %d characters", maxNote))
	}
	if !n.unlimited {
		if err := s.c.Limits.RequireTx(ctx, tx, x.Owner, limits.Backups, 1); err != nil {
			return Backup{}, err
		}
	}
	var waiting, manual int
	err = tx.QueryRow(ctx, `
		SELECT COALESCE(SUM(CASE WHEN status = 'pending' THEN 1 ELSE 0 END), 0), COALESCE(SUM(CASE WHEN type = 'manual' THEN 1 ELSE 0 END), 0)
		FROM backups WHERE site_id = $1`, x.ID).Scan(&waiting, &manual)
	if err != nil {
		return Backup{}, fmt.Errorf("count backups: %w", err)
	}
	if n.Type == Manual && manual >= maxManual {
		return Backup{}, fault.New(fault.Conflict, "too_many_backups", "The site has too many manual backups",
			fmt.Sprintf("at most %d; delete some first", maxManual))
	}
	if waiting >= 3 {
		return Backup{}, fault.New(fault.Conflict, "backup_pending", "Backups of this site are already waiting",
			"wait until they are completed")
	}
	b := Backup{
		ID:         db.ID[ID]("bkp"),
		Owner:      x.Owner,
		Site:       x.ID,
		SiteName:   x.Name,
		Type:       n.Type,
		Status:     Pending,
		Includes:   includes,
		Note:       n.Note,
		CreatedAt:  db.Now(),
		thenDelete: thenDelete,
	}
	switch n.Type {
	case BeforeUpdate, BeforeRestore, BeforeDelete:
		b.ExpiresAt = b.CreatedAt.Add(keepAutomatic)
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO backups (id, owner_id, site_id, site_name, type, status, includes, note, size_bytes, stored_bytes, progress, manifest,
		checksum, base, then_delete, verified_at, error, created_at, completed_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, '', '', '', $9, 0, '', $10, 0, $11)`,
		b.ID, b.Owner, b.Site, b.SiteName, b.Type, b.Status, strings.Join(includes, ","), b.Note, thenDelete, b.CreatedAt, b.ExpiresAt)
	if err != nil {
		return Backup{}, fmt.Errorf("insert backup: %w", err)
	}
	tx.Notify(b.Owner.Topic())
	_, err = job.Enqueue(ctx, tx, Take{b.ID}, job.Options{
		Queue:  QueueName,
		Unique: "backup/" + string(b.ID),
		Group:  "backup/" + string(b.Site),
		Share:  string(b.Owner),
	})
	return b, err
}

// Unavailable is the code of what needs backups on a server that has none.
const Unavailable = "backups_unavailable"

// possible says why there are no backups, where there are none.
func (s *Backups) possible() error {
	if s.c.Repository != nil {
		return nil
	}
	return fault.New(fault.Conflict, Unavailable, "Backups are not available on this server", s.c.Why)
}

func checkIncludes(list []string) ([]string, error) {
	if len(list) == 0 {
		return parts, nil
	}
	var out []string
	for _, p := range parts {
		if slices.Contains(list, p) {
			out = append(out, p)
		}
	}
	for _, p := range list {
		if !slices.Contains(parts, p) {
			return nil, fault.New(fault.Invalid, "invalid_includes", "Invalid includes",
				"includes lists config, files and database").Got(p)
		}
	}
	return out, nil
}

// DeleteTx deletes the owner's backup. Its objects go with the next sweep, unless another
// backup has them too.
func (s *Backups) DeleteTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, id ID) error {
	b, err := s.owned(ctx, tx, owner, id)
	if err != nil {
		return err
	}
	if b.Status == Running {
		return fault.New(fault.Conflict, "backup_running", "The backup is being taken", "delete it when it is completed")
	}
	if b.thenDelete != "" && b.Status == Pending {
		return fault.New(fault.Conflict, "backup_pending", "The site is deleted once this backup is completed",
			"wait until the backup is completed")
	}
	switch restored, err := job.Unfinished(ctx, tx, restoresOf(id)); {
	case err != nil:
		return err
	case restored:
		return fault.New(fault.Conflict, "backup_in_use", "The backup is being restored", "delete it when the restore is completed")
	}
	if _, err := job.Cancel(ctx, tx, "backup/"+string(id)); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM backups WHERE id = $1`, id); err != nil {
		return fmt.Errorf("delete backup: %w", err)
	}
	tx.Notify(owner.Topic())
	return nil
}

// ForgetSiteTx forgets what was planned for a deleted site, and its backups but those that
// were taken before the deletion: they outlive it.
func (s *Backups) ForgetSiteTx(ctx context.Context, tx *db.Tx, id site.ID) error {
	if _, err := tx.Exec(ctx, `DELETE FROM backup_schedules WHERE site_id = $1`, id); err != nil {
		return fmt.Errorf("forget backup schedule: %w", err)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM backups WHERE site_id = $1 AND type <> 'before_delete'`, id); err != nil {
		return fmt.Errorf("forget backups: %w", err)
	}
	return nil
}
