package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"filippo.io/age"

	"slipway/internal/account"
	"slipway/internal/backup"
	"slipway/internal/blob"
	"slipway/internal/db"
	"slipway/internal/fault"
	"slipway/internal/seal"
	"slipway/internal/site"
)

// Backup says where backups are stored.
type Backup struct {
	To         string   // s3://… or a directory; empty: in DataDir. It may hold credentials: never print it.
	Recipients []string // age public keys that can open them besides the installation's key
}

// repository opens the place of backups, without talking to it. Where there is none it
// says why.
func (s Store) repository(b Backup, sealer *seal.Sealer, log *slog.Logger) (r *backup.Repository, why string, err error) {
	to := b.To
	if to == "" {
		if s.remote() {
			return nil, "this server's files are in an object store: the operator sets --backup-to to say where backups go", nil
		}
		to = s.path("backups")
	}
	recipients, err := parseRecipients(b.Recipients)
	if err != nil {
		return nil, "", err
	}
	at, _, err := blob.OpenBackend(to, blob.Options{Cache: s.path("backup-cache"), CacheSize: 64 << 20, Opaque: true, Log: log})
	if err != nil {
		return nil, "", fmt.Errorf("--backup-to: %w", err)
	}
	return backup.NewRepository(backup.RepositoryConfig{Backend: at, Seal: sealer, Recipients: recipients}), "", nil
}

// checkBackup reports what is wrong with the settings. It talks to nobody.
func checkBackup(b Backup) error {
	if strings.HasPrefix(b.To, "s3://") {
		if _, err := blob.ParseS3(b.To, os.Getenv); err != nil {
			return fmt.Errorf("--backup-to: %w", err)
		}
	} else if strings.Contains(b.To, "://") && !strings.HasPrefix(b.To, "file:///") {
		return errors.New("--backup-to: the address must be a directory, or begin with s3://")
	}
	_, err := parseRecipients(b.Recipients)
	return err
}

func parseRecipients(list []string) (out []age.Recipient, err error) {
	for _, text := range list {
		r, err := age.ParseX25519Recipient(strings.TrimSpace(text))
		if err != nil {
			return nil, errors.New("--backup-recipient: a recipient is a public key of age, such as age1…")
		}
		out = append(out, r)
	}
	return out, nil
}

// backupConfig tells the service of backups what it knows nobody of.
func (h *node) backupConfig(store *blob.Store, limits *account.Limits) (backup.Config, error) {
	c := backup.Config{DB: h.db, Limits: limits, Sites: h.sites, Deployments: h.deployments, Hooks: h.webhooks, Operations: h.operations, Blobs: store,
		Scratch: h.s.path("backup-tmp"), Log: h.s.Log, Warn: h.warnOfBackups}
	var err error
	if c.Repository, c.Why, err = h.s.repository(h.s.Backup, h.seal, h.s.Log); err != nil {
		return c, err
	}
	// Databases are not part of backups yet: a backup that would lack them fails, in words.
	c.Databases = func(ctx context.Context, id site.ID) ([]backup.Database, error) {
		env, _, err := h.databases.Env(ctx, string(id))
		if err == nil && len(env) > 0 {
			err = &fault.Error{Kind: fault.Conflict, Message: "The site's databases can't be backed up yet", Details: "leave them out: includes config and files", Code: "databases_not_backed_up"}
		}
		return nil, err
	}
	if e := h.engine; e != nil {
		c.Storage = func(_ context.Context, id site.ID) ([]backup.Folder, error) {
			folders, err := e.StorageFolders(string(id))
			list := make([]backup.Folder, 0, len(folders))
			for _, name := range slices.Sorted(maps.Keys(folders)) {
				list = append(list, backup.Folder{Name: name, Dir: folders[name]})
			}
			return list, err
		}
		c.Hold = func(_ context.Context, id site.ID) (func(), error) { return e.Hold(string(id)), nil }
	}
	if err := os.RemoveAll(c.Scratch); err != nil { // what a crash left there
		return c, fmt.Errorf("clear scratch space of backups: %w", err)
	}
	return c, os.MkdirAll(c.Scratch, 0o700)
}

// warnOfBackups mails the owner of a site that has had no verified backup for long.
func (h *node) warnOfBackups(ctx context.Context, tx *db.Tx, owner account.OwnerID, name string, since db.Time) error {
	last := "There is none that could be verified."
	if since != 0 {
		last = fmt.Sprintf("The last one that could be verified is of %s.", since)
	}
	return h.accounts.TellOwnerTx(ctx, tx, owner, "A site has no verified backup",
		fmt.Sprintf("The site %q is to be backed up by schedule, but has had no verified backup for some time. %s\n\nIts backups, and why they failed:", name, last), "/sites")
}

// forgetBackups removes a deleted site's schedule, and its backups but those taken for the
// deletion.
func (h *node) forgetBackups(ctx context.Context, id site.ID) error {
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.backups.SiteDeletedTx(ctx, tx, id) })
}
