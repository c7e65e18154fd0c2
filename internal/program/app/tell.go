package app

import (
	"context"
	"fmt"
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

// tellTime bounds the write of a message.
const tellTime = 10 * time.Second

// tell has the people of a site told what its live deployment did; of previews and of deployments that were
// replaced meanwhile it says nothing. say gets the site's name in addresses.
func (a *Apps) tell(ctx context.Context, site id.Site, deployment id.Deployment, say func(name string) notify.Message) {
	if a.c.People == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	err := a.c.DB.Write(ctx, func(tx *db.Tx) error {
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
		return a.c.People.TellTx(ctx, tx, owner, site, m)
	})
	if err != nil {
		a.c.Log.ErrorContext(ctx, "people not notified of an application", "site", site, "err", err)
	}
}

// tellEnd has people told of a program that ended by itself: of the first time that it needed more memory
// than it has, and once of a crash loop. mu is held.
func (p *program) tellEnd(why string, memory bool) {
	site, failures := p.want.Site, p.failures
	if memory && failures == 1 {
		p.apps.work.Go(func() {
			p.apps.tell(context.Background(), site, p.deployment, func(name string) notify.Message {
				return notify.Message{
					Event: notify.OutOfMemory,
					Title: name + ": the application ran out of memory",
					Text:  "It is started again. Raise run.memoryMiB if this happens repeatedly.",
				}
			})
		})
	}
	if failures == crashLoop {
		p.apps.work.Go(func() {
			p.apps.tell(context.Background(), site, p.deployment, func(name string) notify.Message {
				return notify.Message{
					Event: notify.AppCrashed,
					Title: fmt.Sprintf("%s: the application crashed %d times in a row", name, failures),
					Text:  why,
				}
			})
		})
	}
}

// tellCron has people told of a scheduled command that failed.
func (a *Apps) tellCron(ctx context.Context, site id.Site, deployment id.Deployment, cron, why string) {
	a.tell(ctx, site, deployment, func(name string) notify.Message {
		return notify.Message{Event: notify.CronFailed, Title: name + ": the scheduled command " + cron + " failed", Text: why}
	})
}
