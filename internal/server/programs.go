package server

import (
	"context"
	"time"

	"slipway/internal/account"
	"slipway/internal/app"
	"slipway/internal/db"
	"slipway/internal/deployment"
	"slipway/internal/fault"
	"slipway/internal/framework"
	"slipway/internal/php"
	"slipway/internal/preview"
	"slipway/internal/site"
)

// releaseTime limits a release command.
const releaseTime = 15 * time.Minute

// runCommand runs a deployment's release command.
func (h *node) runCommand(ctx context.Context, id deployment.ID, c framework.Command, line func(stream, text string)) error {
	exit, err := h.apps.Execute(ctx, app.Execution{Deployment: string(id), Command: app.Command(c), Process: "release", Timeout: releaseTime, Output: line})
	if err != nil {
		return err
	}
	if exit.Code != 0 || exit.OutOfMemory {
		f := &fault.Error{Kind: fault.Invalid, Message: "The release command failed: " + exit.Reason, Details: "the deployment does not go live; see its log", Code: "release_failed"}
		if exit.OutOfMemory {
			f.Details = "raise the site's memory limit, or let the command use less"
		}
		return f
	}
	return nil
}

// mostPrograms is how many programs and commands an owner may run at once.
func (h *node) mostPrograms(limits *account.Limits) func(ctx context.Context, owner string) (int64, error) {
	return func(ctx context.Context, owner string) (int64, error) {
		return limits.LimitOf(ctx, h.db, account.OwnerID(owner), account.LimitPrograms)
	}
}

// appStorage is the way to what programs store, where they run here.
func (h *node) appStorage(limits *account.Limits) app.Storage {
	if h.engine == nil {
		return app.Storage{}
	}
	return app.Storage{Sites: h.engine.StorageSites, Size: h.engine.StorageSize, Tidy: h.tidyPreviews,
		Left: func(ctx context.Context, owner string) (int64, error) {
			u, err := limits.UseOf(ctx, h.db, account.OwnerID(owner), account.LimitStorage)
			return u.Left(), err
		}}
}

// tidyPreviews deletes the storage of previews that have ended.
func (h *node) tidyPreviews(ctx context.Context) error {
	stores, err := h.engine.PreviewStores() // before the previews: one that begins meanwhile is not among them
	if err != nil {
		return err
	}
	for of, names := range stores {
		keys, err := h.deployments.Previews.Keys(ctx, site.ID(of))
		if err != nil {
			return err
		}
		kept := map[string]bool{}
		for _, key := range keys {
			kept[preview.Store(key)] = true
		}
		for _, name := range names {
			if !kept[name] {
				if err := h.engine.ForgetPreview(of, name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// startProgram brings a deployment's program up before it goes live.
func (h *node) startProgram(ctx context.Context, id deployment.ID, say func(line string)) (func(), error) {
	return h.apps.Start(ctx, string(id), say)
}

// lastProgramLines are the last lines that a deployment's program printed.
func (h *node) lastProgramLines(ctx context.Context, id site.ID, deployment deployment.ID) []string {
	lines, err := h.apps.Logs(ctx, string(id), app.LogFilter{Deployment: string(deployment), Limit: 30, Flush: true})
	if err != nil {
		h.s.Log.WarnContext(ctx, "application log not read", "site", id, "err", err)
		return nil
	}
	out := make([]string, 0, len(lines))
	for _, l := range lines {
		if l.Stream != "system" {
			out = append(out, l.Message)
		}
	}
	return out
}

// forgetPrograms forgets what a deleted site's programs printed, and drops its databases;
// they end by themselves.
func (h *node) forgetPrograms(ctx context.Context, id site.ID) error {
	if err := h.databases.Forget(ctx, id); err != nil {
		return err
	}
	if err := h.forgetWordPress(ctx, id); err != nil {
		return err
	}
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.apps.PurgeTx(ctx, tx, string(id)) })
}

// phpVersion returns the version of PHP that a constraint of composer.json gets.
func phpVersion(ctx context.Context, constraint string) (string, error) {
	v, err := php.Choose(ctx, constraint)
	return v.Number, err
}

// forgetStorage deletes what a deleted site's programs have stored.
func (h *node) forgetStorage(_ context.Context, id site.ID) error {
	if h.engine == nil {
		return nil
	}
	return h.engine.ForgetStorage(string(id))
}
