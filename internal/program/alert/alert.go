// Package alert owns the messages to people about what the programs of their sites did by themselves: ended, again and again, for want
// of memory, or with a failure.
package alert

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/notify"
)

// People are told of what ends by itself. *notify.Notifications tells them.
type People interface {
	TellTx(ctx context.Context, tx *db.Tx, owner account.OwnerID, site id.Site, m notify.Message) error
}

// Alerts tells people what the programs of their sites did.
type Alerts struct {
	db     *db.DB
	people People // nil: nobody is told
	log    *slog.Logger
}

// New returns Alerts. p is optional.
func New(d *db.DB, p People, log *slog.Logger) *Alerts { return &Alerts{d, p, log} }

// tellTime bounds the write of a message.
const tellTime = 10 * time.Second

// tell has the people of a site told what its live deployment did; of previews and of deployments that were
// replaced meanwhile it says nothing. say gets the site's name in addresses.
func (a *Alerts) tell(ctx context.Context, site id.Site, deployment id.Deployment, say func(name string) notify.Message) {
	if a.people == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	err := a.db.Write(ctx, func(tx *db.Tx) error {
		var name string
		var owner account.OwnerID
		err := tx.QueryRow(ctx, `SELECT host_label, owner_id FROM live WHERE site_id = $1 AND deployment_id = $2 AND state = 'live'`,
			site, deployment).Scan(&name, &owner)
		if fault.Is(err, fault.NotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		m := say(name)
		m.Path = "/sites/" + string(site) + "/logs"
		return a.people.TellTx(ctx, tx, owner, site, m)
	})
	if err != nil {
		a.log.ErrorContext(ctx, "people not notified of an application", "site", site, "err", err)
	}
}

// OutOfMemory tells of a program that needed more memory than it has.
func (a *Alerts) OutOfMemory(ctx context.Context, site id.Site, deployment id.Deployment) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{
			Event: notify.OutOfMemory,
			Title: name + ": the application ran out of memory",
			Text:  "It is started again. Raise run.memoryMiB if this happens repeatedly.",
		}
	})
}

// Crashed tells of a program that ended so often in a row.
func (a *Alerts) Crashed(ctx context.Context, site id.Site, deployment id.Deployment, times int, why string) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{
			Event: notify.AppCrashed,
			Title: fmt.Sprintf("%s: the application crashed %d times in a row", name, times),
			Text:  why,
		}
	})
}

// Worker tells of a background process that ended so often in a row.
func (a *Alerts) Worker(ctx context.Context, site id.Site, deployment id.Deployment, worker string, times int, why string) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{
			Event: notify.AppCrashed, Title: fmt.Sprintf("%s: the worker %s crashed %d times in a row", name, worker, times), Text: why,
		}
	})
}

// Hung tells of a program that ran but no longer answered, and was ended.
func (a *Alerts) Hung(ctx context.Context, site id.Site, deployment id.Deployment, why string) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{Event: notify.AppCrashed, Title: name + ": the application stopped responding", Text: why}
	})
}

// Cron tells of a scheduled command that failed.
func (a *Alerts) Cron(ctx context.Context, site id.Site, deployment id.Deployment, cron, why string) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{Event: notify.CronFailed, Title: name + ": the scheduled command " + cron + " failed", Text: why}
	})
}
