package domain

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/notify"
	"slipway/internal/tenant/webhook"
	"slipway/internal/tenant/webhook/event"
)

// EventsOf returns Events that announce changes of domains to webhooks, and problems also to people.
func EventsOf(hooks *webhook.Webhooks, people *notify.Notifications) Events {
	return events{hooks, people}
}

type events struct {
	hooks  *webhook.Webhooks
	people *notify.Notifications
}

// AnnounceTx implements [Events].
func (e events) AnnounceTx(ctx context.Context, tx *db.Tx, what string, d Domain) error {
	var name string
	err := tx.QueryRow(ctx, `SELECT name FROM open_sites WHERE id = $1`, d.SiteID).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // the site is gone; site.deleted covers it
	}
	if err != nil {
		return fmt.Errorf("name site of %s: %w", d.ID, err)
	}
	of := event.Site{ID: d.SiteID, Name: name}
	told := event.Domain{
		ID:        d.ID,
		Name:      d.Name,
		Status:    string(d.Status),
		SSLStatus: string(d.SSL),
		Reason:    d.Reason,
		CreatedAt: d.CreatedAt,
	}
	c := d.Certificate
	certificate := event.Certificate{
		Domain:        d.Name,
		Issuer:        c.Issuer,
		NotBefore:     c.NotBefore,
		ExpiresAt:     c.ExpiresAt,
		LastError:     c.LastError,
		NextAttemptAt: c.NextAttemptAt,
	}
	path := "/sites/" + string(d.SiteID) + "/domains/" + string(d.ID)
	switch what {
	case CertificateIssued:
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.SSLIssued(of, certificate))
	case CertificateRenewed:
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.SSLRenewed(of, certificate))
	case CertificateFailed:
		if err := e.people.TellTx(ctx, tx, d.Owner, d.SiteID, notify.Message{
			Event: notify.CertificateFailed,
			Title: "The certificate of " + d.Name + " could not be issued",
			Text:  c.LastError,
			Path:  path,
		}); err != nil {
			return err
		}
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.SSLFailed(of, certificate))
	case Added:
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.DomainAdded(of, told))
	case Verified:
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.DomainVerified(of, told))
	case GaveUp:
		if err := e.people.TellTx(ctx, tx, d.Owner, d.SiteID, notify.Message{
			Event: notify.DomainFailed,
			Title: "Domain " + d.Name + " of " + name + " is not working",
			Text:  d.Reason,
			Path:  path,
		}); err != nil {
			return err
		}
		return e.hooks.EmitTx(ctx, tx, d.Owner, event.DomainFailed(of, told))
	}
	return fmt.Errorf("announce %s: no such event", what)
}
