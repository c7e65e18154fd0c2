package operator

import (
	"context"
	"fmt"

	"slipway/internal/deploy/deploy"
	"slipway/internal/operator/config"
	"slipway/internal/operator/doctor"
	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/job"
	"slipway/internal/platform/node"
	"slipway/internal/tenant/account"
	"slipway/internal/web/dashboard/shell"
)

// Installation describes this installation for the operator's pages. It is implemented by Host.
type Installation interface {
	Nodes(ctx context.Context) ([]node.Node, error)
	Queues(ctx context.Context) ([]Queue, error)
	Disk(ctx context.Context) (Disk, error)
	Doctor(ctx context.Context) ([]Finding, error)
}

// Queue is the state of a queue of background jobs.
type Queue struct {
	Name    string
	Workers int     // of this process
	Running int     // now
	Waiting int     // due now
	Later   int     // due later: retries and scheduled jobs
	GivenUp int     // failed permanently
	Oldest  db.Time // due time of the longest waiting job; 0: none
}

// Disk is the file system of the data directory.
type Disk struct {
	Path  string
	Size  int64 // bytes
	Free  int64 // bytes
	Parts []DiskPart
}

// Used returns the used share of the file system in percent.
func (d *Disk) Used() int { return shell.Percent(d.Size-d.Free, d.Size) }

// DiskPart is the size of one part of the data directory.
type DiskPart struct {
	Name string
	Size int64 // bytes
}

// Finding is a result of the doctor's checks.
type Finding struct {
	Name     string
	OK       bool
	Required bool // whether the installation can't work without it
	Text     string
}

// Host is the installation as seen by this node.
type Host struct {
	DB           *db.DB
	Accounts     *account.Accounts
	Store        installation.Store
	SMTP         config.SMTP
	Certificates doctor.Certificates
	Workers      map[string]int // of this process, by queue
}

// Nodes returns the installation's processes.
func (h *Host) Nodes(ctx context.Context) ([]node.Node, error) { return node.List(ctx, h.DB) }

// Queues returns the state of every job queue.
func (h *Host) Queues(ctx context.Context) ([]Queue, error) {
	have, err := job.Queues(ctx, h.DB)
	if err != nil {
		return nil, err
	}
	out := []Queue{{Name: "default", Workers: h.Workers["default"]}, {Name: deploy.QueueName, Workers: h.Workers[deploy.QueueName]}}
	if h.Accounts.Mails() {
		out = append(out, Queue{Name: account.MailQueue, Workers: h.Workers[account.MailQueue]})
	}
	for _, q := range have {
		for i := range out {
			if out[i].Name == q.Queue {
				out[i] = Queue{
					Name: q.Queue, Workers: out[i].Workers, Running: q.Running, Waiting: q.Waiting,
					Later: q.Later, GivenUp: q.GivenUp, Oldest: q.Oldest,
				}
			}
		}
	}
	return out, nil
}

// Disk returns the size of the data directory and the free space.
func (h *Host) Disk(ctx context.Context) (Disk, error) {
	size, free, err := installation.DiskSpace(h.Store.DataDir)
	if err != nil {
		return Disk{}, fmt.Errorf("read disk usage: %w", err)
	}
	d := Disk{Path: h.Store.DataDir, Size: size, Free: free}
	parts := map[string]string{
		"Files of releases":        h.Store.BlobDir(),
		"Repositories":             h.Store.Path("source"),
		"Builds, tools and caches": h.Store.Path("builds"),
	}
	if h.Store.Remote() {
		delete(parts, "Files of releases")
		parts["Copies of files of releases"] = h.Store.Path("blob-cache")
	}
	for name, dir := range parts {
		size, err := installation.TreeSize(ctx, dir)
		if err != nil {
			return Disk{}, err
		}
		d.Parts = append(d.Parts, DiskPart{Name: name, Size: size})
	}
	return d, nil
}

// Doctor runs the doctor's checks.
func (h *Host) Doctor(ctx context.Context) ([]Finding, error) {
	var out []Finding
	for _, c := range doctor.Examine(ctx, h.Store, h.SMTP, h.Certificates) {
		out = append(out, Finding{Name: c.Name, OK: c.OK, Required: c.Required, Text: c.Text})
	}
	return out, nil
}
