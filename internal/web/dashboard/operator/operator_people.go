package operator

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

// changeRole makes a user an operator or revokes that role.
func (d *Pages) changeRole(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	admin := q.Value("role") == "operator"
	is := map[bool]string{true: "operator", false: "user"}
	err = d.DB.Write(ctx, func(tx *db.Tx) error {
		// Write the log first, since an operator who revokes their own role couldn't afterwards.
		err := d.Accounts.AuditTx(ctx, tx, q.Actor(), audit.Event{
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
		return shell.Answer{}, err
	}
	if !admin && u.ID == q.User.ID {
		a := shell.GoTo("/sign-in", "You are no longer an operator. Sign in again")
		a.Cookies = []*http.Cookie{d.NoCookie(shell.SessionCookie)}
		return a, nil
	}
	return shell.GoTo("/operator/users/"+string(u.ID), u.Email+" is "+is[admin]+" now"), nil
}

// suspendUser suspends a user. Their sites stay online unless the operator stops them.
func (d *Pages) suspendUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	var sites []site.ID
	if q.Checked("stop") {
		if sites, err = d.Teams.SitesOf(ctx, u.Owner); err != nil {
			return shell.Answer{}, err
		}
	}
	stopped := 0
	var teams []string
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		stopped = 0
		for _, id := range sites {
			s, err := d.Sites.StopTx(ctx, tx, u.Owner, id)
			if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) {
				continue // it isn't online, or is gone
			}
			if err == nil {
				err = d.Accounts.AuditTx(ctx, tx, q.Actor(), audit.Event{
					Action:  "site.stopped",
					Subject: string(id),
					About:   u.ID,
					Detail:  s.Name,
				})
			}
			if err != nil {
				return audit.Event{}, err
			}
			stopped++
		}
		if teams, err = account.LastOwnerOf(ctx, tx, u.ID); err != nil {
			return audit.Event{}, err
		}
		x, err := d.Accounts.SuspendTx(ctx, tx, q.Actor(), u.ID, q.Value("why"))
		detail := u.Email
		if x.Why != "" {
			detail += ": " + x.Why
		}
		return audit.Event{Action: "user.suspended", Subject: string(u.ID), About: u.ID, Detail: detail}, err
	})
	says := "Suspended " + u.Email
	if stopped > 0 {
		says += ", and " + text.Count(stopped, "site") + " stopped"
	}
	if len(teams) > 0 {
		says += ". Without an active owner: " + strings.Join(teams, ", ")
	}
	return shell.GoTo("/operator/users/"+string(u.ID), says), err
}

func (d *Pages) resumeUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Accounts.ResumeTx(ctx, tx, u.ID)
		return audit.Event{Action: "user.resumed", Subject: string(u.ID), About: u.ID, Detail: u.Email}, err
	})
	return shell.GoTo("/operator/users/"+string(u.ID), "Unsuspended "+u.Email), err
}

// deleteUser deletes a user and everything they own. If they own sites, the operator must type the address, and the
// number of sites must equal the one in the dialog.
func (d *Pages) deleteUser(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if err := d.Prove(ctx, q); err != nil {
		return shell.Answer{}, err
	}
	u, err := d.whose(ctx, q)
	if err != nil {
		return shell.Answer{}, err
	}
	sites, err := d.Teams.SitesOf(ctx, u.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	told := team.UserDeletion{Confirm: q.Value("confirm"), Erase: q.Checked("erase")}
	if n := q.Value("sites"); n != "" {
		if told.Sites, err = strconv.Atoi(n); err != nil {
			return shell.Answer{}, &fault.Error{Kind: fault.Invalid, Message: "Invalid number of sites", Code: "invalid_sites"}
		}
	}
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		return d.Teams.DeleteUserTx(ctx, tx, q.Actor(), u, sites, told)
	})
	return shell.GoTo("/operator/users", "Deleted "+u.Email), err
}
