//go:build linux

package main

import (
	"context"

	"slipway/internal/operator/flags"
	"slipway/internal/platform/id"

	"slipway/internal/operator/recovery"
)

type backupCommand struct {
	Create  backupCreate  `cmd:"" help:"Back the whole installation up while it runs: database, keys, files, sites' storage and databases. What the last backup has is not stored again."`
	List    backupList    `cmd:"" help:"List backups of the installation."`
	Verify  backupVerify  `cmd:"" help:"Check that a backup can be restored: read all of it, load its databases into a temporary server and compare them."`
	Repair  backupRepair  `cmd:"" help:"Read everything that backups need and store again what is missing or damaged, as far as the installation still has it. It takes a new backup, and lists those that can't be restored whole."`
	Restore backupRestore `cmd:"" help:"Restore an installation from a backup, into an empty data directory."`

	RestoreStorage backupRestoreStorage `cmd:"" help:"Restore what sites store while the installation runs, from their newest backups or one of the installation: into volumes of Kubernetes, or where storage alone was lost."`
}

type backupCreate struct {
	flags.Data
	To string `name:"to" help:"Where to: s3://BUCKET?endpoint=https://HOST or a directory. Default: --backup-to of slipway serve." placeholder:"URL"`
}

// Run makes the running service take a backup, and waits for it.
func (b backupCreate) Run(ctx context.Context) error {
	return recovery.Create(ctx, b.Store(), b.To, stdout)
}

type backupRepair struct {
	flags.Data
	To string `name:"to" help:"Where the backups are: s3://BUCKET?endpoint=https://HOST or a directory. Default: --backup-to of slipway serve." placeholder:"URL"`
}

// Run makes the running service repair the backups, and waits for it.
func (b backupRepair) Run(ctx context.Context) error {
	return recovery.Repair(ctx, b.Store(), b.To, stdout)
}

// place holds the flags that locate and decrypt backups.
type place struct {
	From     string `name:"from" help:"Where the backups are: s3://BUCKET?endpoint=https://HOST or a directory." required:"" placeholder:"URL"`
	Key      string `name:"key" help:"The installation's secrets.key, which opens its backups. Default: that of the data directory." type:"path" env:"SLIPWAY_SECRETS_KEY" placeholder:"FILE"`
	Identity string `name:"identity" help:"Identity of age that opens the backups instead." type:"path" placeholder:"FILE"`
}

func (p place) place() recovery.Place {
	return recovery.Place{From: p.From, Key: p.Key, Identity: p.Identity}
}

type backupList struct {
	flags.Data
	place
}

// Run prints the backups.
func (b backupList) Run(ctx context.Context) error {
	return recovery.List(ctx, b.Store(), b.place.place(), stdout)
}

type backupVerify struct {
	flags.Data
	place
	ID string `name:"id" help:"Which backup. Default: the newest." placeholder:"ID"`
}

// Run verifies a backup.
func (b backupVerify) Run(ctx context.Context) error {
	return recovery.Verify(ctx, b.Store(), b.place.place(), id.Backup(b.ID), "", stdout)
}

type backupRestore struct {
	flags.Data
	place
	ID      string `name:"id" help:"Which backup. Default: the newest." placeholder:"ID"`
	MariaDB string `name:"mariadb" help:"MariaDB server for sites' databases, as for slipway serve. Default: private ones." placeholder:"ADDRESS"`

	WithoutStorage bool `help:"Leave out what sites store. slipway backup restore-storage puts it where it belongs once the installation runs, such as into volumes of Kubernetes."`
}

// Run restores a backup.
func (b backupRestore) Run(ctx context.Context) error {
	to := recovery.Target{MariaDB: b.MariaDB, NoStorage: b.WithoutStorage}
	return recovery.Restore(ctx, b.Store(), b.place.place(), id.Backup(b.ID), to, stdout)
}

type backupRestoreStorage struct {
	flags.Data
	From string `name:"from" help:"Where backups of the whole installation are: s3://BUCKET?endpoint=https://HOST, with credentials in the environment of slipway serve, or a directory. Default: each site's own newest backup is restored." placeholder:"URL"`
	ID   string `name:"id" help:"Which backup of the installation. Default: the newest." placeholder:"ID"`
	Yes  bool   `env:"-" help:"Replace what sites store now."`
}

// Run makes the running service restore sites' storage, and waits for it.
func (b backupRestoreStorage) Run(ctx context.Context) error {
	return recovery.RestoreStorage(ctx, b.Store(), b.From, id.Backup(b.ID), b.Yes, stdout)
}
