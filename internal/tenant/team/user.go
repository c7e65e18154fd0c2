package team

import (
	"context"
	"fmt"
	"strings"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
)

// UserDeletion holds what an operator confirms before a user is deleted.
type UserDeletion struct {
	Sites   int    // how many sites the operator knows that the user has
	Confirm string // the user's address. Optional without sites.
	Erase   bool   // the audit log forgets the user's email and IP addresses, too
}

// SitesOf returns the ids of all sites of an owner.
func (s *Teams) SitesOf(ctx context.Context, owner account.OwnerID) (ids []site.ID, err error) {
	for page := 1; ; page++ {
		list, total, err := s.c.Sites.List(ctx, owner, site.Filter{Page: page, Limit: 500})
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			ids = append(ids, one.ID)
		}
		if len(list) == 0 || len(ids) >= total {
			return ids, nil
		}
	}
}

// DeleteUserTx deletes a user for an operator, with everything of their personal account, and returns the event for the
// audit log. sites are those of SitesOf: a site that was made since is a Conflict fault. So are the last owner of a team, the
// last operator, and the operator who asks.
func (s *Teams) DeleteUserTx(
	ctx context.Context, tx *db.Tx, by audit.Actor, u account.User, sites []site.ID, d UserDeletion,
) (audit.Event, error) {
	did := audit.Event{Action: "user.deleted", Subject: string(u.ID), About: u.ID, Detail: u.Email}
	if n := len(sites); n != d.Sites {
		return did, fault.New(fault.Conflict, "user_has_sites", fmt.Sprintf("%s now has %s", u.Email, text.Count(n, "site")),
			"nothing was deleted: review the user's sites and try again")
	} else if n > 0 {
		if strings.TrimSpace(d.Confirm) != u.Email {
			return did, fault.New(fault.Invalid, "confirmation_mismatch", "The email doesn't match",
				"nothing was deleted: type "+u.Email+" to confirm")
		}
		did.Detail += ", with " + text.Count(n, "site")
	}
	for _, id := range sites {
		if err := s.c.Sites.DeleteTx(ctx, tx, u.Owner, id); err != nil && !fault.Is(err, fault.NotFound) {
			return did, err
		}
	}
	if err := s.closeOwnerTx(ctx, tx, u.Owner); err != nil {
		return did, err
	}
	if s.ties.OAuth != nil {
		if err := s.ties.OAuth.ForgetUserTx(ctx, tx, u.ID); err != nil {
			return did, err
		}
	}
	if _, err := s.c.Accounts.DeleteUserTx(ctx, tx, by, u.ID); err != nil || !d.Erase {
		return did, err
	}
	did.Action, did.Detail = "user.erased", strings.Replace(did.Detail, u.Email, audit.Erased, 1)
	return did, audit.EraseTx(ctx, tx, u.ID, u.Email)
}
