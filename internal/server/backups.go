package server

import (
	"fmt"
	"os"

	"slipway/internal/backup/backup"
	"slipway/internal/backup/snapshot"
	"slipway/internal/operator/recovery"
	"slipway/internal/platform/blob"
	"slipway/internal/tenant/limits"
)

// openBackups makes the service of backups.
func (h *node) openBackups(store *blob.Store, quotas *limits.Limits) error {
	c := backup.Config{
		DB:          h.db,
		Limits:      quotas,
		Sites:       h.sites,
		Deployments: h.deployments,
		Hooks:       h.webhooks,
		Notify:      h.notify,
		Operations:  h.operations,
		Blobs:       store,
		Databases:   snapshot.DatabasesOf(h.databases, h.db),
		Every:       h.s.Backup.Every,
		Alarm:       h.s.Backup.Alarm,
		Scratch:     h.s.Path("backup-tmp"),
		Log:         h.s.Log,
		Mail:        h.accounts,
		Places:      h.places,
	}
	if h.engine != nil {
		c.Storage = snapshot.Storage(h.engine)
	}
	c.Installation = &recovery.Installation{
		Store:     h.s.Store,
		Settings:  h.s.Backup,
		DB:        h.db,
		Seal:      h.seal,
		Blobs:     store,
		Databases: c.Databases,
		Storage:   c.Storage,
		Version:   h.s.Version,
		Log:       h.s.Log,
	}
	var err error
	if c.Repository, c.Why, err = recovery.Open(h.s.Store, h.s.Backup, h.seal, h.s.Log); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Scratch); err != nil { // what a crash left there
		return fmt.Errorf("clear scratch space of backups: %w", err)
	}
	h.backups = backup.New(c)
	return os.MkdirAll(c.Scratch, 0o700)
}
