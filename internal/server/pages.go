package server

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/dashboard"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/job"
	"slipway/internal/site"
	"slipway/internal/source"
)

func (h *node) dashboardConfig() dashboard.Config {
	return dashboard.Config{Certificates: h.addresses(),
		DB: h.db, Accounts: h.accounts, Sites: h.sites, Deployments: h.deployments, Git: h.git, Connections: h.connections, Notify: h.notify, Domains: h.domains, Databases: h.databases, Backups: h.backups, WordPress: h.wordpress, Traffic: h.traffic, Webhooks: h.webhooks, Log: h.s.Log,
		BaseURL: h.s.baseURL, APIURL: h.s.apiURL, TrustedProxies: h.s.proxies, Ready: h.ready, Version: h.s.Version,
		Branches: h.branches, Detect: h.detect, Answer: h.answerQuestion, Queues: h.queues, Disk: h.disk, Doctor: h.findings,
		Process: h.processOf, ProgramLog: h.programLog, Figures: h.programFigures, Tasks: h.programTasks, RunCommandTx: h.runOnceTx,
	}
}

// processOf is the state of the program of a site's live deployment.
func (h *node) processOf(s site.Site) dashboard.Process {
	p := h.apps.Status(s.LiveDeployment)
	out := dashboard.Process{State: string(p.State), Restarts: p.Restarts, Memory: p.Memory, Message: p.Message}
	if !p.Since.IsZero() {
		out.Since = db.At(p.Since)
	}
	return out
}

// programLog is the latest lines that a site's programs printed.
func (h *node) programLog(ctx context.Context, id site.ID, f dashboard.ProgramFilter) ([]dashboard.ProgramLine, error) {
	lines, err := h.apps.Logs(ctx, string(id), app.LogFilter{Stream: f.Stream, Process: f.Process, Search: f.Search, Limit: f.Limit})
	out := make([]dashboard.ProgramLine, len(lines))
	for i, l := range lines {
		out[i] = dashboard.ProgramLine{N: l.N, At: l.At, Level: l.Level, Stream: l.Stream, Message: l.Message}
	}
	return out, err
}

// programFigures are those of a site's program over the last 24 hours.
func (h *node) programFigures(ctx context.Context, id site.ID) ([]dashboard.ProgramFigures, time.Duration, error) {
	list, _, step, err := h.apps.Metrics(ctx, string(id), db.Now().Add(-24*time.Hour), 0, 0)
	out := make([]dashboard.ProgramFigures, len(list))
	for i, p := range list {
		out[i] = dashboard.ProgramFigures{At: p.At, Statuses: p.Statuses, P50: p.Latency(.5), P95: p.Latency(.95), Memory: p.Memory, CPU: p.CPU, Wakes: p.Wakes, Restart: p.Restarts}
	}
	return out, step, err
}

// programTasks lists what runs beside a site's program.
func (h *node) programTasks(ctx context.Context, id site.ID) ([]dashboard.ProgramTask, error) {
	list, err := h.apps.Tasks(ctx, string(id))
	out := make([]dashboard.ProgramTask, len(list))
	for i, t := range list {
		out[i] = dashboard.ProgramTask{Kind: t.Kind, Name: t.Name, Command: t.Command.String(), Schedule: t.Schedule, Next: t.Next, State: string(t.State), Message: t.Message}
	}
	return out, err
}

// runOnceTx opens the operation that runs a command of a site once.
func (h *node) runOnceTx(ctx context.Context, tx *db.Tx, s site.Site, command string) (string, error) {
	switch {
	case command == "" || len(command) > 4096 || strings.ContainsRune(command, 0):
		return "", &fault.Error{Kind: fault.Invalid, Message: "Invalid command", Details: "1 to 4,096 bytes of text", Code: "invalid_command"}
	case s.Status == site.Stopped:
		return "", &fault.Error{Kind: fault.Conflict, Message: "This site is stopped", Details: "start it first", Code: "site_stopped"}
	case s.Runtime == "" || s.Runtime == framework.Static || s.LiveDeployment == "":
		return "", &fault.Error{Kind: fault.Conflict, Message: "This site has no program", Details: "commands run in the files of an application", Code: "no_program"}
	}
	_, err := h.apps.RunTx(ctx, tx, s.Owner, string(s.ID), s.LiveDeployment, appCommand(framework.ParseCommand(command)), app.CommandTime)
	return app.CommandProcess, err
}

// branches looks at a repository that somebody is about to make a site of.
func (h *node) branches(ctx context.Context, who account.OwnerID, repository string, c *source.Credential) ([]string, string, error) {
	repo, err := source.ParseRepository(repository)
	if err != nil {
		return nil, "", err
	}
	id := db.NewID("look")
	defer h.source.Forget(context.WithoutCancel(ctx), id)
	return h.source.Branches(ctx, source.Request{Site: id, Repository: repo, Credential: c, Owner: string(who), Look: true})
}

// detect says how a branch would be built, from a copy that is thrown away again.
func (h *node) detect(ctx context.Context, who account.OwnerID, repository, branch string, c *source.Credential, o framework.Overrides) (framework.Plan, error) {
	repo, err := source.ParseRepository(repository)
	if err != nil {
		return framework.Plan{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	id := db.NewID("look")
	defer h.source.Forget(context.WithoutCancel(ctx), id)
	tree, err := h.source.Fetch(ctx, source.Request{Site: id, Repository: repo, Branch: branch, Credential: c, Owner: string(who), Look: true})
	if err != nil {
		return framework.Plan{}, err
	}
	defer tree.Close()
	return deploy.Detect(ctx, tree, o)
}

// public is the part of the control plane that is meant for users, and that the edge
// serves too where --base-url is https: programs at /api, /hooks and /docs, people
// everywhere else.
func (h *node) public() http.Handler {
	if h.api == nil {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			plain(w, http.StatusNotFound, "This node does not serve the interface.")
		})
	}
	programs, people := h.api.Handler(), h.pages.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch first, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); first {
		case "api", "hooks", "docs":
			programs.ServeHTTP(w, r)
		default:
			people.ServeHTTP(w, r)
		}
	})
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
	token, err := h.accounts.NewSetupLink(ctx, "", setupLinkLife)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "There is no user yet. Create the first one here within %d hours:\n\n    %s/setup/%s\n\n", int(setupLinkLife.Hours()), h.s.baseURL, token)
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
	size, free, err := diskSpace(h.s.DataDir)
	if err != nil {
		return dashboard.Disk{}, fmt.Errorf("read disk usage: %w", err)
	}
	d := dashboard.Disk{Path: h.s.DataDir, Size: size, Free: free}
	parts := map[string]string{"Files of releases": h.s.blobDir(), "Repositories": h.s.path("source"), "Builds, tools and caches": h.s.path("builds")}
	if h.s.remote() {
		delete(parts, "Files of releases")
		parts["Copies of files of releases"] = h.s.path("blob-cache")
	}
	for name, dir := range parts {
		size, err := treeSize(ctx, dir)
		if err != nil {
			return dashboard.Disk{}, err
		}
		d.Parts = append(d.Parts, dashboard.DiskPart{Name: name, Size: size})
	}
	return d, nil
}

func treeSize(ctx context.Context, dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || !e.Type().IsRegular() {
			return nil // what goes away while we look is not counted
		}
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
		return nil
	})
	return size, err
}

func (h *node) findings(ctx context.Context) ([]dashboard.Finding, error) {
	var out []dashboard.Finding
	for _, c := range append(examine(ctx, h.s.Store, h.s.SMTP), Certificates{SiteDomain: h.s.SiteDomain, Public: len(h.s.ACMECA) > 0, DNS: h.s.ACMEDNS != ""}.check()) {
		out = append(out, dashboard.Finding{Name: c.name, OK: c.ok, Required: c.required, Text: c.text})
	}
	return out, nil
}
