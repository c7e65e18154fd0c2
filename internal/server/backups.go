package server

import (
	"slipway/internal/backup/backup"
	"slipway/internal/backup/snapshot"
	"slipway/internal/operator/recovery"
	"slipway/internal/platform/blob"
)

// openBackups makes the service of backups.
func (h *node) openBackups(store *blob.Store) error {
	c := backup.Config{
		DB:          h.DB,
		Limits:      h.Limits,
		Sites:       h.Sites,
		Deployments: h.Deployments,
		Hooks:       h.Webhooks,
		Notify:      h.Notify,
		Operations:  h.Operations,
		Blobs:       store,
		Databases:   snapshot.DatabasesOf(h.Databases, h.DB),
		Every:       h.s.Backup.Every,
		Alarm:       h.s.Backup.Alarm,
		Log:         h.s.Log,
		Mail:        h.Accounts,
		Places:      h.places,
	}
	if h.engine != nil {
		c.Storage = snapshot.Storage(h.engine)
	}
	c.Installation = &recovery.Installation{
		Store:     h.s.Store,
		Settings:  h.s.Backup,
		DB:        h.DB,
		Seal:      h.seal,
		Blobs:     store,
		Databases: c.Databases,
		Storage:   c.Storage,
		Version:   h.s.Version,
		Log:       h.s.Log,
	}
	var err error
	if c.Scratch, err = h.s.Scratch("backup-tmp"); err != nil {
		return err
	}
	if c.Repository, c.Why, err = recovery.Open(h.s.Store, h.s.Backup, h.seal, h.s.Log); err != nil {
		return err
	}
	h.Backups = backup.New(c)
	return nil
}
