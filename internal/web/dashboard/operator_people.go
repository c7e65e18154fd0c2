package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// changeRole makes a user an operator, or an operator a user.
func (d *Dashboard) changeRole(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	admin := q.value("role") == "operator"
	is := map[bool]string{true: "operator", false: "user"}
	err = d.DB.Write(ctx, func(tx *db.Tx) error {
		// The line first: whoever gives up their own role may still write it.
		err := d.Accounts.AuditTx(ctx, tx, q.actor(), account.AuditEvent{
			Action:  "user.role",
			Subject: string(u.ID),
			About:   u.ID,
			Detail:  u.Email + " is " + is[admin] + " now",
		})
		if err == nil {
			_, err = d.Accounts.SetRoleTx(ctx, tx, u.ID, admin)
		}
		return err
	})
	if err != nil {
		return answer{}, err
	}
	if !admin && u.ID == q.user.ID {
		a := goTo("/sign-in", "You are no longer an operator. Sign in again")
		a.cookies = []*http.Cookie{d.noCookie(sessionCookie)}
		return a, nil
	}
	return goTo("/operator/users/"+string(u.ID), u.Email+" is "+is[admin]+" now"), nil
}

// suspendUser keeps a user out. Their sites go on, unless the operator wants them stopped.
func (d *Dashboard) suspendUser(ctx context.Context, q *request) (answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	var sites []site.ID
	if q.checked("stop") {
		if sites, err = d.sitesOf(ctx, u.Owner); err != nil {
			return answer{}, err
		}
	}
	stopped := 0
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		stopped = 0
		for _, id := range sites {
			s, err := d.Sites.StopTx(ctx, tx, u.Owner, id)
			if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
				continue // it is not on the air, or gone
			}
			if err == nil {
				err = d.Accounts.AuditTx(ctx, tx, q.actor(), account.AuditEvent{
					Action:  "site.stopped",
					Subject: string(id),
					About:   u.ID,
					Detail:  s.Name,
				})
			}
			if err != nil {
				return account.AuditEvent{}, err
			}
			stopped++
		}
		x, err := d.Accounts.SuspendTx(ctx, tx, q.actor(), u.ID, q.value("why"))
		detail := u.Email
		if x.Why != "" {
			detail += ": " + x.Why
		}
		return account.AuditEvent{Action: "user.suspended", Subject: string(u.ID), About: u.ID, Detail: detail}, err
	})
	says := "Suspended " + u.Email
	if stopped > 0 {
		says += ", and " + text.Count(stopped, "site") + " stopped"
	}
	return goTo("/operator/users/"+string(u.ID), says), err
}

func (d *Dashboard) resumeUser(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		_, err := d.Accounts.ResumeTx(ctx, tx, u.ID)
		return account.AuditEvent{Action: "user.resumed", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	return goTo("/operator/users/"+string(u.ID), "Unsuspended "+u.Email), err
}

// deleteUser ends a user with all that is theirs. Where that includes sites, the address
// is typed, and the number of sites must be the one that the dialog told.
func (d *Dashboard) deleteUser(ctx context.Context, q *request) (answer, error) {
	if err := d.prove(ctx, q); err != nil {
		return answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return answer{}, err
	}
	sites, err := d.sitesOf(ctx, u.Owner)
	if err != nil {
		return answer{}, err
	}
	detail := u.Email
	if n := len(sites); n > 0 {
		if q.value("sites") != strconv.Itoa(n) {
			return answer{}, &fault.Error{
				Kind:    fault.Conflict,
				Message: fmt.Sprintf("%s now has %s", u.Email, text.Count(n, "site")),
				Details: "nothing was deleted: review the user's sites and try again",
			}
		}
		if strings.TrimSpace(q.value("confirm")) != u.Email {
			return answer{}, &fault.Error{
				Kind:    fault.Invalid,
				Message: "The email doesn't match",
				Details: "nothing was deleted: type " + u.Email + " to confirm",
			}
		}
		detail += ", with " + text.Count(n, "site")
	}
	err = d.actOn(ctx, q, func(tx *db.Tx) (account.AuditEvent, error) {
		for _, id := range sites {
			if err := d.Sites.DeleteTx(ctx, tx, u.Owner, id); err != nil && !fault.Is(err, fault.NotFound) {
				return account.AuditEvent{}, err
			}
		}
		if err := d.Webhooks.DeleteAllTx(ctx, tx, u.Owner); err != nil {
			return account.AuditEvent{}, err
		}
		_, err := d.Accounts.DeleteUserTx(ctx, tx, q.actor(), u.ID)
		return account.AuditEvent{Action: "user.deleted", Subject: string(u.ID), About: u.ID, Detail: detail}, err
	})
	return goTo("/operator/users", "Deleted "+u.Email), err
}

// sitesOf returns every site of an owner.
func (d *Dashboard) sitesOf(ctx context.Context, owner account.OwnerID) (ids []site.ID, err error) {
	for page := 1; ; page++ {
		list, total, err := d.Sites.List(ctx, owner, site.Filter{Page: page, Limit: maxChoices})
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			ids = append(ids, s.ID)
		}
		if len(list) == 0 || len(ids) >= total {
			return ids, nil
		}
	}
}
