// Package metrics owns the figures of an installation that /metrics shows beside those that packages count by themselves: how many
// sites, deployments and jobs there are, how full the disk is, and what the process takes.
//
// They are read when somebody asks. A figure that can't be read in two seconds is -1.
package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"slipway/internal/backup/backup"
	"slipway/internal/deploy/deployment"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/mail"
	"slipway/internal/tenant/site"
)

// patience is how long a figure may take.
const patience = 2 * time.Second

// Register adds the figures of the installation whose database is r, and whose data directory is dir. A nil mailer sends nothing.
func Register(to prometheus.Registerer, r db.Reader, dir string, mailer *mail.Mailer) {
	to.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "slipway_panics_total",
		Help: "Panics that were caught, each of which ended one piece of work. The log has their stacks.",
	}, func() float64 { return float64(panics.Count()) }))
	to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "slipway_mails_sent_total", Help: "Emails that the mail server has taken.",
	}, func() float64 { sent, _ := mailer.Counts(); return float64(sent) }))
	to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "slipway_mails_failed_total", Help: "Attempts to send an email that failed. Most are repeated.",
	}, func() float64 { _, failed := mailer.Counts(); return float64(failed) }))
	gauge := func(name, help string, read func(context.Context) (int64, error)) {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			n, err := read(ctx)
			if err != nil {
				return -1
			}
			return float64(n)
		}))
	}
	gauge("slipway_disk_bytes", "Size of the disk of the data directory.", func(context.Context) (int64, error) {
		size, _, err := installation.DiskSpace(dir)
		return size, err
	})
	gauge(
		"slipway_disk_free_bytes",
		"What is free on it, in bytes or in files at their usual size, whichever is less.",
		func(context.Context) (int64, error) {
			_, free, err := installation.DiskSpace(dir)
			return free, err
		},
	)
	files := func(which func(all, free int64) int64) func(context.Context) (int64, error) {
		return func(context.Context) (int64, error) {
			all, free, err := installation.DiskFiles(dir)
			return which(all, free), err
		}
	}
	gauge("slipway_disk_files", "Files that the disk of the data directory has room for (inodes). 0: it doesn't count them.",
		files(func(all, _ int64) int64 { return all }))
	gauge("slipway_disk_free_files", "How many more files it has room for.", files(func(_, free int64) int64 { return free }))
	standing := func(read func(x backup.Standing, now db.Time) time.Duration) func(context.Context) (int64, error) {
		return func(ctx context.Context) (int64, error) {
			x, err := backup.StandingOf(ctx, r)
			return int64(read(x, db.Now()) / time.Second), err
		}
	}
	gauge("slipway_installation_backup_interval_seconds", "How often the installation is backed up. 0: by hand alone.",
		standing(func(x backup.Standing, _ db.Time) time.Duration { return x.Every }))
	gauge("slipway_installation_backup_age_seconds",
		"Age of the newest backup of the installation, or since when the first one is awaited. 0: there is none, and none is due.",
		standing(func(x backup.Standing, now db.Time) time.Duration {
			if x.Every == 0 && x.Succeeded == 0 {
				return 0
			}
			return x.Age(now)
		}))
	gauge("slipway_installation_backup_unverified_seconds",
		"How long ago all that the newest backup holds was last read and found whole. 0: there is no backup, and none is due.",
		standing(func(x backup.Standing, now db.Time) time.Duration {
			if x.Every == 0 && x.Succeeded == 0 {
				return 0
			}
			return x.Unproven(now)
		}))
	gauge("slipway_installation_backup_failing", "1: the last backup of the installation failed.", func(ctx context.Context) (int64, error) {
		x, err := backup.StandingOf(ctx, r)
		if x.Failing() {
			return 1, err
		}
		return 0, err
	})
	gauge("slipway_installation_backups_damaged", "Backups of the installation that need a missing or damaged object.",
		func(ctx context.Context) (int64, error) {
			x, err := backup.StandingOf(ctx, r)
			return int64(len(x.Damaged)), err
		})
	count := func(name, help string, total func(context.Context, db.Reader) (int, error)) {
		gauge(name, help, func(ctx context.Context) (int64, error) {
			n, err := total(ctx, r)
			return int64(n), err
		})
	}
	count("slipway_sites", "Sites that exist.", site.Total)
	count("slipway_deployments_pending", "Deployments in the queue.", deployment.PendingTotal)
	count("slipway_deployments_running", "Deployments in progress.", deployment.RunningTotal)
	count("slipway_jobs_dead", "Jobs that failed permanently.", job.Dead)
	count(
		"slipway_jobs_unknown",
		"Jobs that have been due for a minute or longer and whose kind no running node knows; slipway doctor lists the kinds.",
		func(ctx context.Context, r db.Reader) (n int, err error) {
			list, err := job.Unknown(ctx, r)
			for _, w := range list {
				n += w.Jobs
			}
			return n, err
		},
	)
}
