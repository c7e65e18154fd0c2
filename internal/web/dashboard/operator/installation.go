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

// Installation tells the operator's pages of this installation. A Host does.
type Installation interface {
	Nodes(ctx context.Context) ([]node.Node, error)
	Queues(ctx context.Context) ([]Queue, error)
	Disk(ctx context.Context) (Disk, error)
	Doctor(ctx context.Context) ([]Finding, error)
}

// Queue is one queue of background jobs.
type Queue struct {
	Name    string
	Workers int     // of this process
	Running int     // now
	Waiting int     // due now
	Later   int     // due later: retries and schedules
	GivenUp int     // failed for good
	Oldest  db.Time // since when the one that is due longest waits; 0: none
}

// Disk is the file system that holds the data directory.
type Disk struct {
	Path  string
	Size  int64 // bytes
	Free  int64 // bytes
	Parts []DiskPart
}

// Used returns how much of the file system is used, in percent.
func (d *Disk) Used() int { return shell.Percent(d.Size-d.Free, d.Size) }

// DiskPart holds the size of one part of the data directory.
type DiskPart struct {
	Name string
	Size int64 // bytes
}

// Finding is one line of what the doctor says.
type Finding struct {
	Name     string
	OK       bool
	Required bool // nothing works without it
	Text     string
}

// Host is the installation as this node sees it.
type Host struct {
	DB           *db.DB
	Accounts     *account.Accounts
	Store        installation.Store
	SMTP         config.SMTP
	Certificates doctor.Certificates
	Workers      map[string]int // of this process, by queue
}

// Nodes returns the processes that serve this installation.
func (h *Host) Nodes(ctx context.Context) ([]node.Node, error) { return node.List(ctx, h.DB) }

// Queues returns the jobs that wait and run, for the operator.
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

// Disk returns the size of the data directory, and the space left.
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

// Doctor returns what the doctor finds.
func (h *Host) Doctor(ctx context.Context) ([]Finding, error) {
	var out []Finding
	for _, c := range doctor.Examine(ctx, h.Store, h.SMTP, h.Certificates) {
		out = append(out, Finding{Name: c.Name, OK: c.OK, Required: c.Required, Text: c.Text})
	}
	return out, nil
}
