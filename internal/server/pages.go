package server

import (
	"context"
	"fmt"
	"os"

	"slipway/internal/account"
	"slipway/internal/admin"
	"slipway/internal/dashboard"
	"slipway/internal/deploy"
	"slipway/internal/doctor"
	"slipway/internal/git"
	"slipway/internal/installation"
	"slipway/internal/job"
)

func (h *node) dashboardConfig() dashboard.Config {
	look := git.Look{Source: h.source, Sites: h.sites}
	return dashboard.Config{Certificates: h.addresses(),
		DB: h.db, Accounts: h.accounts, Sites: h.sites, Deployments: h.deployments, Rules: h.rules, Thumbnails: h.thumbnails, Git: h.git, Connections: h.connections, Notify: h.notify, Domains: h.domains, Databases: h.databases, Backups: h.backups, WordPress: h.wordpress, Traffic: h.traffic, Webhooks: h.webhooks, Log: h.s.Log,
		BaseURL: h.s.BaseURL, APIURL: h.s.APIURL, TrustedProxies: h.s.Proxies, Ready: h.ready, Version: h.s.Version,
		Branches: look.Branches, Detect: look.Detect, Answer: h.members.Answer, Queues: h.queues, Disk: h.disk, Doctor: h.findings,
		Programs: dashboard.ProgramsOf(h.apps),
	}
}

// invite prints the way in while there is no user yet: a link that works once.
func (h *node) invite(ctx context.Context) error {
	if h.pages == nil {
		return nil
	}
	empty, err := h.accounts.Empty(ctx)
	if err != nil || !empty {
		return err
	}
	token, err := h.accounts.NewSetupLink(ctx, "", admin.SetupLinkLife)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "There is no user yet. Create the first one here within %d hours:\n\n    %s/setup/%s\n\n", int(admin.SetupLinkLife.Hours()), h.s.BaseURL, token)
	return nil
}

// queues returns the jobs that wait and run, for the operator.
func (h *node) queues(ctx context.Context) ([]dashboard.Queue, error) {
	have, err := job.Queues(ctx, h.db)
	if err != nil {
		return nil, err
	}
	out := []dashboard.Queue{{Name: "default", Workers: workers["default"]}, {Name: deploy.QueueName, Workers: workers[deploy.QueueName]}}
	if h.accounts.Mails() {
		out = append(out, dashboard.Queue{Name: account.MailQueue, Workers: workers[account.MailQueue]})
	}
	for _, q := range have {
		for i := range out {
			if out[i].Name == q.Queue {
				out[i] = dashboard.Queue{Name: q.Queue, Workers: out[i].Workers, Running: q.Running, Waiting: q.Waiting,
					Later: q.Later, GivenUp: q.GivenUp, Oldest: q.Oldest}
			}
		}
	}
	return out, nil
}

// disk returns the size of the data directory, and the space left.
func (h *node) disk(ctx context.Context) (dashboard.Disk, error) {
	size, free, err := installation.DiskSpace(h.s.DataDir)
	if err != nil {
		return dashboard.Disk{}, fmt.Errorf("read disk usage: %w", err)
	}
	d := dashboard.Disk{Path: h.s.DataDir, Size: size, Free: free}
	parts := map[string]string{"Files of releases": h.s.BlobDir(), "Repositories": h.s.Path("source"), "Builds, tools and caches": h.s.Path("builds")}
	if h.s.Remote() {
		delete(parts, "Files of releases")
		parts["Copies of files of releases"] = h.s.Path("blob-cache")
	}
	for name, dir := range parts {
		size, err := installation.TreeSize(ctx, dir)
		if err != nil {
			return dashboard.Disk{}, err
		}
		d.Parts = append(d.Parts, dashboard.DiskPart{Name: name, Size: size})
	}
	return d, nil
}

func (h *node) findings(ctx context.Context) ([]dashboard.Finding, error) {
	var out []dashboard.Finding
	for _, c := range doctor.Examine(ctx, h.s.Store, h.s.SMTP, doctor.Certificates{SiteDomain: h.s.SiteDomain, Public: len(h.s.ACMECA) > 0, DNS: h.s.ACMEDNS != ""}) {
		out = append(out, dashboard.Finding{Name: c.Name, OK: c.OK, Required: c.Required, Text: c.Text})
	}
	return out, nil
}
