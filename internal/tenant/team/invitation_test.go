package team_test

import (
	"context"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
)

// An invitation is for one address, works once, and gives only a role that its sender may give both when it is sent and
// when it is accepted. Attacks reported against other products are refused and give no role.
func TestInvitationHijacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	for name, tt := range map[string]struct {
		by     account.Role // the sender's role
		role   account.Role // empty: a guest who manages a site
		before func(w *world, of team.Team, ada, by, ben account.User, invited team.Invitation, token string) (use string)
		eve    bool // the accepting user isn't the invited one
		sent   string
		code   string
	}{
		"as it was sent":               {by: account.RoleAdmin, role: account.RoleViewer},
		"of a guest, as it was sent":   {by: account.RoleAdmin},
		"by another user":              {by: account.RoleAdmin, role: account.RoleAdmin, eve: true, code: "other_address"},
		"a role above the sender's":    {by: account.RoleAdmin, role: account.RoleOwner, sent: "role_too_high"},
		"an admin's by a developer":    {by: account.RoleDeveloper, role: account.RoleAdmin, sent: "role_too_high"},
		"a role that is none":          {by: account.RoleAdmin, role: "root", sent: "invalid_role"},
		"of a guest, by a viewer":      {by: account.RoleViewer, sent: "role_too_high"},
		"a second time":                {by: account.RoleAdmin, role: account.RoleViewer, before: accepted, code: "invitation_not_found"},
		"revoked":                      {by: account.RoleAdmin, role: account.RoleViewer, before: revoked, code: "invitation_not_found"},
		"sent again, by the older one": {by: account.RoleAdmin, role: account.RoleViewer, before: resent, code: "invitation_not_found"},
		"of a deleted team":            {by: account.RoleOwner, role: account.RoleViewer, before: deleted, code: "invitation_not_found"},
		"expired":                      {by: account.RoleAdmin, role: account.RoleViewer, before: expired, code: "invitation_not_found"},
		"its id for its token":         {by: account.RoleAdmin, role: account.RoleViewer, before: byID, code: "invitation_not_found"},
		"its sender was lowered":       {by: account.RoleAdmin, role: account.RoleAdmin, before: lowered, code: "inviter_demoted"},
		"of a guest, sender lowered":   {by: account.RoleAdmin, before: lowered, code: "inviter_demoted"},
		"its sender was removed":       {by: account.RoleAdmin, role: account.RoleViewer, before: removed, code: "inviter_demoted"},
	} {
		ada, by := w.user(db.Random(8)+"@example.test"), w.user(db.Random(8)+"@example.test")
		ben, eve := w.user(db.Random(8)+"@example.test"), w.user(db.Random(8)+"@example.test")
		of := w.team(ada)
		w.join(of, ada, by, tt.by)
		invite := team.NewInvitation{Email: ben.Email, Role: tt.role}
		if tt.role == account.RoleGuest {
			s, err := w.sites.Create(t.Context(), of.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/shop"})
			if err != nil {
				t.Fatal(err)
			}
			invite.Sites = map[id.Site]account.Role{s.ID: account.RoleManager}
		}
		var invited team.Invitation
		var token string
		err := w.write(func(ctx context.Context, tx *db.Tx) (err error) {
			invited, token, err = w.teams.InviteTx(ctx, tx, w.caller(by, of), invite)
			return err
		})
		if tt.sent != "" {
			if code(err) != tt.sent {
				t.Errorf("%s: sent: %v, want %s", name, err, tt.sent)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tt.before != nil {
			token = tt.before(w, of, ada, by, ben, invited, token)
		}
		who := ben
		if tt.eve {
			who = eve
		}
		had, err := account.MembershipOf(t.Context(), w.db, who.ID, of.Owner)
		if err != nil {
			t.Fatal(err)
		}
		err = w.write(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.teams.AcceptTx(ctx, tx, who, token)
			return err
		})
		has, failed := account.MembershipOf(t.Context(), w.db, who.ID, of.Owner)
		if failed != nil {
			t.Fatal(failed)
		}
		ok := err == nil && has.Member() && has.Role == tt.role
		if tt.code != "" {
			ok = code(err) == tt.code && has.Role == had.Role && len(has.Sites) == len(had.Sites)
		}
		if !ok {
			t.Errorf("%s: %v, and the role is %q with %v, want %q", name, err, has.Role, has.Sites, tt.code)
		}
	}
}

func accepted(w *world, _ team.Team, _, _, ben account.User, _ team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.AcceptTx(ctx, tx, ben, token)
		return err
	})
	return token
}

func revoked(w *world, of team.Team, ada, _, _ account.User, i team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.teams.RevokeInvitationTx(ctx, tx, w.caller(ada, of), i.ID)
		return err
	})
	return token
}

func resent(w *world, of team.Team, ada, _, _ account.User, i team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.ResendTx(ctx, tx, w.caller(ada, of), i.ID)
		return err
	})
	return token
}

func deleted(w *world, of team.Team, ada, _, _ account.User, _ team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.DeleteTx(ctx, tx, w.caller(ada, of), of.Slug, false)
		return err
	})
	return token
}

func expired(w *world, _ team.Team, _, _, _ account.User, i team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE team_invitations SET expires_at = 1 WHERE id = $1`, i.ID)
		return err
	})
	return token
}

func byID(_ *world, _ team.Team, _, _, _ account.User, i team.Invitation, _ string) string {
	return string(i.ID)
}

func lowered(w *world, of team.Team, _, by, _ account.User, _ team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE team_members SET role = 'viewer' WHERE owner_id = $1 AND user_id = $2`, of.Owner, by.ID)
		return err
	})
	return token
}

func removed(w *world, of team.Team, _, by, _ account.User, _ team.Invitation, token string) string {
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `DELETE FROM team_members WHERE owner_id = $1 AND user_id = $2`, of.Owner, by.ID)
		return err
	})
	return token
}

// An admin can't replace an owner's invitation with a lower role for the same address.
func TestInvitationsOfOwnersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, by, ben := w.user("ada@example.test"), w.user("by@example.test"), w.user("ben@example.test")
	of := w.team(ada)
	w.join(of, ada, by, account.RoleAdmin)
	var token string
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		_, token, err = w.teams.InviteTx(ctx, tx, w.caller(ada, of), team.NewInvitation{Email: ben.Email, Role: account.RoleOwner})
		return err
	})
	err := w.write(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.InviteTx(ctx, tx, w.caller(by, of), team.NewInvitation{Email: "Ben@Example.test", Role: account.RoleViewer})
		return err
	})
	if code(err) != "role_too_high" {
		t.Errorf("an admin replaces an owner's invitation: %v", err)
	}
	if i, err := w.teams.Invitation(t.Context(), token); err != nil || i.Role != account.RoleOwner {
		t.Errorf("afterwards it is %+v, %v", i, err)
	}
}
