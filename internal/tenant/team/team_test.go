package team_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/dbtest"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/job"
	"slipway/internal/platform/seal"
	"slipway/internal/platform/wait"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/limits"
	"slipway/internal/tenant/operation"
	"slipway/internal/tenant/site"
	"slipway/internal/tenant/team"
	"slipway/internal/tenant/webhook"
)

var here = netip.MustParseAddr("203.0.113.7")

// world is the team service with real services and its own database.
type world struct {
	t     *testing.T
	db    *db.DB
	users *account.Accounts
	sites *site.Sites
	teams *team.Teams
	ops   *operation.Operations
	hooks *webhook.Webhooks
}

func newWorld(t *testing.T, settings limits.Settings) *world {
	t.Helper()
	d := dbtest.New(t)
	key, err := seal.Load(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quotas := limits.New(settings)
	w := &world{t: t, db: d, users: account.New(account.Config{DB: d, Limits: quotas}), ops: operation.New(operation.Config{DB: d})}
	w.hooks = webhook.New(webhook.Config{DB: d, Seal: key, Limits: quotas})
	w.sites = site.New(site.Config{DB: d, Limits: quotas, Hooks: w.hooks, Seal: key, Domain: "sites.test"})
	w.teams = team.New(team.Config{DB: d, Accounts: w.users, Limits: quotas, Sites: w.sites, Hooks: w.hooks, Operations: w.ops})
	return w
}

func (w *world) write(do func(ctx context.Context, tx *db.Tx) error) error {
	return w.db.Write(w.t.Context(), func(tx *db.Tx) error { return do(w.t.Context(), tx) })
}

func (w *world) must(do func(ctx context.Context, tx *db.Tx) error) {
	w.t.Helper()
	if err := w.write(do); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) user(email string) account.User {
	w.t.Helper()
	u, err := w.users.CreateUser(w.t.Context(), email, "", false)
	if err != nil {
		w.t.Fatal(err)
	}
	return u
}

// team creates a team with these owners.
func (w *world) team(owners ...account.User) team.Team {
	w.t.Helper()
	var t team.Team
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		t, err = w.teams.CreateTx(ctx, tx, owners[0], team.NewTeam{Name: "Acme"})
		return err
	})
	for _, u := range owners[1:] {
		w.join(t, owners[0], u, account.RoleOwner)
	}
	return t
}

func (w *world) join(t team.Team, by, u account.User, role account.Role) {
	w.t.Helper()
	c := w.caller(by, t)
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, token, err := w.teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: u.Email, Role: role})
		if err != nil {
			return err
		}
		_, _, err = w.teams.AcceptTx(ctx, tx, u, token)
		return err
	})
}

func (w *world) caller(u account.User, t team.Team) account.Caller {
	w.t.Helper()
	c, err := w.users.CallerFor(w.t.Context(), w.db, u, t.Owner)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

func code(err error) string {
	if f := fault.As(err); f != nil {
		return f.Code
	}
	return fmt.Sprint(err)
}

// When two owners remove or demote each other, or both leave, at the same time, one stays an owner.
func TestLastOwnerUnderRaces(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, ctx context.Context, tx *db.Tx, by account.Caller, other account.User, of team.Team) error{
		"remove": func(w *world, ctx context.Context, tx *db.Tx, by account.Caller, other account.User, _ team.Team) error {
			_, _, err := w.teams.RemoveTx(ctx, tx, by, other.ID)
			return err
		},
		"demote": func(w *world, ctx context.Context, tx *db.Tx, by account.Caller, other account.User, _ team.Team) error {
			_, err := w.teams.ChangeTx(ctx, tx, by, other.ID, account.RoleViewer)
			return err
		},
		"leave": func(w *world, ctx context.Context, tx *db.Tx, by account.Caller, _ account.User, of team.Team) error {
			return w.teams.LeaveTx(ctx, tx, by.User, of)
		},
		"delete the account": func(w *world, ctx context.Context, tx *db.Tx, _ account.Caller, other account.User, _ team.Team) error {
			_, err := w.users.DeleteUserTx(ctx, tx, audit.Actor{}, other.ID)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, limits.Settings{})
			for round := range 5 {
				a, b := w.user(fmt.Sprintf("a%d@example.test", round)), w.user(fmt.Sprintf("b%d@example.test", round))
				of := w.team(a, b)
				callers := []account.Caller{w.caller(a, of), w.caller(b, of)}
				var codes [2]string
				var wg sync.WaitGroup
				for i, other := range []account.User{b, a} {
					wg.Go(func() {
						if err := w.write(func(ctx context.Context, tx *db.Tx) error {
							// The audit entry fails the change if the caller was removed meanwhile, as in an operation.
							if err := w.users.AuditTx(ctx, tx, callers[i].Actor(here), audit.Event{Action: "test.done"}); err != nil {
								return err
							}
							return end(w, ctx, tx, callers[i], other, of)
						}); err != nil {
							codes[i] = code(err)
						}
					})
				}
				wg.Wait()
				list, _, err := w.teams.Members(t.Context(), of.Owner, team.MemberFilter{})
				if err != nil {
					t.Fatal(err)
				}
				owners := 0
				for _, m := range list {
					if m.Role == account.RoleOwner {
						owners++
					}
				}
				if owners != 1 || (codes[0] == "") == (codes[1] == "") {
					t.Fatalf("%d owners stay, the answers are %q", owners, codes)
				}
			}
		})
	}
}

// A change in progress is rolled back if its caller has lost the right meanwhile.
func TestRemovalUndoesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, ben := w.user("ada@example.test"), w.user("ben@example.test")
	of := w.team(ada)
	w.join(of, ada, ben, account.RoleDeveloper)
	acts := w.caller(ben, of)
	change := func() error {
		return w.write(func(ctx context.Context, tx *db.Tx) error {
			if _, err := w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{
				Name: "Shop", Type: "static", Repository: "git.test/acme/site",
			}); err != nil {
				return err
			}
			return w.users.AuditTx(ctx, tx, acts.Actor(here), audit.Event{Action: "site.created", Subject: "x"})
		})
	}
	if err := change(); err != nil {
		t.Fatal(err)
	}
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.teams.ChangeTx(ctx, tx, w.caller(ada, of), ben.ID, account.RoleViewer)
		return err
	})
	if err := change(); code(err) != "role_changed" {
		t.Errorf("with a lower role: %v", err)
	}
	acts = w.caller(ben, of)
	if err := w.users.Holds(t.Context(), acts); err != nil {
		t.Errorf("a member: %v", err)
	}
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.RemoveTx(ctx, tx, w.caller(ada, of), ben.ID)
		return err
	})
	if err := change(); code(err) != "not_a_member" {
		t.Errorf("a removed member: %v", err)
	}
	if err := w.users.Holds(t.Context(), acts); code(err) != "not_a_member" {
		t.Errorf("a stream of a removed member: %v", err)
	}
	if _, total, err := w.sites.List(t.Context(), of.Owner, site.Filter{Page: 1, Limit: 9}); err != nil || total != 1 {
		t.Errorf("%d sites, %v", total, err)
	}
}

// Only a current member can create a team's API key. A removed or demoted admin leaves no service key behind.
func TestNoKeyAfterTheRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, ben := w.user("ada@example.test"), w.user("ben@example.test")
	of := w.team(ada)
	w.join(of, ada, ben, account.RoleAdmin)
	create := func(c account.Caller) error {
		return w.write(func(ctx context.Context, tx *db.Tx) error {
			_, _, err := w.users.CreateKeyTx(ctx, tx, c, account.NewKey{Name: "ci", Scopes: account.Scopes{account.SitesRead}, Service: true})
			return err
		})
	}
	began := w.caller(ben, of)
	if err := create(began); err != nil {
		t.Fatal(err)
	}
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.teams.ChangeTx(ctx, tx, w.caller(ada, of), ben.ID, account.RoleDeveloper)
		return err
	})
	if err := create(began); code(err) != "role_changed" {
		t.Errorf("a demoted admin: %v", err)
	}
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, _, err := w.teams.RemoveTx(ctx, tx, w.caller(ada, of), ben.ID)
		return err
	})
	if err := create(began); code(err) != "not_a_member" {
		t.Errorf("a removed admin: %v", err)
	}
}

// An invitation accepted by concurrent requests adds one member.
func TestAcceptOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, ben := w.user("ada@example.test"), w.user("ben@example.test")
	of := w.team(ada)
	var token string
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		_, token, err = w.teams.InviteTx(ctx, tx, w.caller(ada, of), team.NewInvitation{Email: "ben@example.test", Role: account.RoleViewer})
		return err
	})
	for range 3 { // viewing doesn't use it up
		if i, err := w.teams.Invitation(t.Context(), token); err != nil || i.Email != ben.Email || i.Team != "Acme" {
			t.Fatalf("%+v, %v", i, err)
		}
	}
	var won sync.Map
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			err := w.write(func(ctx context.Context, tx *db.Tx) error {
				_, _, err := w.teams.AcceptTx(ctx, tx, ben, token)
				return err
			})
			if err == nil {
				won.Store(i, true)
			} else if code(err) != "invitation_not_found" {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	won.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("accepted %d times", n)
	}
	var stored string
	if err := w.db.QueryRow(t.Context(), "SELECT COALESCE(max(hash), '') FROM team_invitations").Scan(&stored); err != nil || stored != "" {
		t.Errorf("an invitation stays: %q, %v", stored, err)
	}
}

// Limits set for the team's slug in the operator's file apply to the team and its members.
func TestLimitsOfTeams(t *testing.T) {
	t.Parallel()
	settings, err := limits.Parse("[defaults]\nteams = 1\n[teams.acme]\nmembers = 2\nsites = 1\n")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, settings)
	ada := w.user("ada@example.test")
	of := w.team(ada)
	c := w.caller(ada, of)
	for name, do := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"teams": func(ctx context.Context, tx *db.Tx) error {
			_, err := w.teams.CreateTx(ctx, tx, ada, team.NewTeam{Name: "More"})
			return err
		},
		"members": func(ctx context.Context, tx *db.Tx) error {
			for _, email := range []string{"x@example.test", "y@example.test"} {
				if _, _, err := w.teams.InviteTx(ctx, tx, c, team.NewInvitation{Email: email, Role: account.RoleViewer}); err != nil {
					return err
				}
			}
			return nil
		},
		"sites": func(ctx context.Context, tx *db.Tx) error {
			for range 2 {
				if _, err := w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{
					Name: "Shop", Type: "static", Repository: "git.test/acme/site",
				}); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		err := w.write(do)
		if f := fault.As(err); f == nil || f.Kind != fault.Payment || f.Limit.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := limits.Parse("[teams.acme]\nsomething = 1\n"); err == nil {
		t.Error("an unknown limit of a team is taken")
	}
}

// Stands accepts a team's deploy hooks unless the team is suspended or deleted.
func TestTeamStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada := w.user("ada@example.test")
	of := w.team(ada)
	if err := w.users.Stands(t.Context(), w.db, of.Owner); err != nil {
		t.Errorf("a team: %v", err)
	}
	if err := w.db.Admin(t.Context(), "UPDATE teams SET suspended_at = 1"); err != nil {
		t.Fatal(err)
	}
	if err := w.users.Stands(t.Context(), w.db, of.Owner); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a suspended one: %v", err)
	}
	if _, err := w.users.CallerFor(t.Context(), w.db, ada, of.Owner); !fault.Is(err, fault.Forbidden) {
		t.Errorf("a member of a suspended one: %v", err)
	}
	if err := w.users.Stands(t.Context(), w.db, ada.Owner); err != nil {
		t.Errorf("their personal account: %v", err)
	}
}

// A job deletes a team with sites: first the sites, then the team. Its slug stays reserved for 90 days.
func TestDeleteWithSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada := w.user("ada@example.test")
	of := w.team(ada)
	c := w.caller(ada, of)
	w.must(func(ctx context.Context, tx *db.Tx) error {
		for _, name := range []string{"One", "Two", "Three"} {
			if _, err := w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{
				Name: name, Type: "static", Repository: "git.test/acme/site",
			}); err != nil {
				return err
			}
		}
		return nil
	})
	remove := func(confirm string, sites bool) (o *operation.Operation, err error) {
		return o, w.write(func(ctx context.Context, tx *db.Tx) (err error) {
			_, o, err = w.teams.DeleteTx(ctx, tx, c, confirm, sites)
			return err
		})
	}
	if _, err := remove("acme", false); code(err) != "team_has_sites" {
		t.Errorf("with sites: %v", err)
	}
	if _, err := remove("other", true); code(err) != "invalid_confirm" {
		t.Errorf("another slug: %v", err)
	}
	o, err := remove("acme", true)
	if err != nil || o == nil {
		t.Fatal(o, err)
	}
	jobs := job.New(job.Config{DB: w.db, Queues: map[string]int{"default": 1}})
	w.teams.Work(jobs)
	job.Handle(jobs, job.Policy{}, func(context.Context, site.Purge, int64) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx) }()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		got, err := w.ops.Get(t.Context(), of.Owner, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.CompletedAt != 0 {
			if got.Status != operation.Success {
				t.Errorf("the operation ended as %+v", got)
			}
			break
		}
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-poll.C:
		}
	}
	stop()
	<-ended
	if _, err := w.teams.Get(t.Context(), w.db, of.Owner); !fault.Is(err, fault.NotFound) {
		t.Errorf("the team is there: %v", err)
	}
	if err := w.users.Holds(t.Context(), c); fault.As(err) == nil {
		t.Errorf("the team's last owner still has access")
	}
	eve := w.user("eve@example.test")
	take := func() error {
		return w.write(func(ctx context.Context, tx *db.Tx) error {
			_, err := w.teams.CreateTx(ctx, tx, eve, team.NewTeam{Name: "Acme", Slug: "acme"})
			return err
		})
	}
	if err := take(); code(err) != "slug_taken" {
		t.Errorf("the slug of a deleted team: %v", err)
	}
	if err := w.db.Admin(t.Context(), "UPDATE teams SET deleted_at = 1"); err != nil {
		t.Fatal(err)
	}
	if err := take(); err != nil {
		t.Errorf("90 days later: %v", err)
	}
}

// An operator can make a member or another user an owner of a team.
func TestAppoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, ben, eve := w.user("ada@example.test"), w.user("ben@example.test"), w.user("eve@example.test")
	of := w.team(ada)
	w.join(of, ada, ben, account.RoleViewer)
	for _, u := range []account.User{ben, eve} {
		w.must(func(ctx context.Context, tx *db.Tx) error {
			_, err := w.teams.AppointTx(ctx, tx, "acme", u.ID)
			return err
		})
		if c := w.caller(u, of); c.Role != account.RoleOwner {
			t.Errorf("%s is %q", u.Email, c.Role)
		}
	}
	if err := w.write(func(ctx context.Context, tx *db.Tx) error {
		_, err := w.teams.AppointTx(ctx, tx, "other", eve.ID)
		return err
	}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a team that is not there: %v", err)
	}
}

// A suspended owner doesn't count as an owner: the other owner is the last one and can't be removed or deleted.
func TestSuspendedOwnersDontCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada, ben := w.user("ada@example.test"), w.user("ben@example.test")
	of := w.team(ada, ben)
	c := w.caller(ada, of)
	owned := func(want int) {
		t.Helper()
		if teams, err := account.LastOwnerOf(t.Context(), w.db, ada.ID); err != nil || len(teams) != want {
			t.Errorf("ada is the last owner of %q, %v", teams, err)
		}
	}
	owned(0)
	w.must(func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE users SET suspended_at = 1 WHERE id = $1`, ben.ID)
		return err
	})
	owned(1)
	for name, end := range map[string]func(ctx context.Context, tx *db.Tx) error{
		"leave": func(ctx context.Context, tx *db.Tx) error { return w.teams.LeaveTx(ctx, tx, ada.ID, of) },
		"demote": func(ctx context.Context, tx *db.Tx) error {
			_, err := w.teams.ChangeTx(ctx, tx, c, ada.ID, account.RoleAdmin)
			return err
		},
		"delete the account": func(ctx context.Context, tx *db.Tx) error {
			_, err := w.users.DeleteUserTx(ctx, tx, audit.Actor{}, ada.ID)
			return err
		},
	} {
		if err := w.write(end); code(err) != "last_owner" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Members are listed in pages, filtered by part of their address and by a role on a site, always in the same order.
func TestMembersInPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada := w.user("ada@example.test")
	of := w.team(ada)
	var shop site.Site
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		shop, err = w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{Name: "Shop", Type: "static", Repository: "git.test/acme/shop"})
		return err
	})
	emails := []string{"ada@example.test"}
	for _, name := range []string{"b_n", "ben", "eve", "bob"} {
		u := w.user(name + "@example.test")
		w.join(of, ada, u, account.RoleViewer)
		emails = append(emails, u.Email)
		if name == "eve" {
			w.must(func(ctx context.Context, tx *db.Tx) error {
				_, err := w.teams.SetSiteTx(ctx, tx, w.caller(ada, of), shop.ID, u.ID, account.RoleDeveloper)
				return err
			})
		}
	}
	for _, tt := range []struct {
		f     team.MemberFilter
		want  []string
		total int
	}{
		{team.MemberFilter{}, emails, 5},
		{team.MemberFilter{Page: 2, Limit: 2}, emails[2:4], 5},
		{team.MemberFilter{Page: 4, Limit: 2}, nil, 5},
		{team.MemberFilter{Search: "B_N", Page: 1, Limit: 9}, emails[1:2], 1},
		{team.MemberFilter{Search: "b", Page: 1, Limit: 2}, emails[1:3], 3},
		{team.MemberFilter{Site: shop.ID}, emails[3:4], 1},
		{team.MemberFilter{Site: "site_other", Page: 1, Limit: 9}, nil, 0},
	} {
		list, total, err := w.teams.Members(t.Context(), of.Owner, tt.f)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range list {
			got = append(got, m.Email)
		}
		if !slices.Equal(got, tt.want) || total != tt.total {
			t.Errorf("%+v: %q of %d, want %q of %d", tt.f, got, total, tt.want, tt.total)
		}
	}
}

// Deleting a team a second time, once its sites are gone, ends it immediately and finishes the running operation.
func TestDeletedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, limits.Settings{})
	ada := w.user("ada@example.test")
	of := w.team(ada)
	c := w.caller(ada, of)
	var one site.Site
	var o *operation.Operation
	w.must(func(ctx context.Context, tx *db.Tx) (err error) {
		if one, err = w.sites.CreateTx(ctx, tx, of.Owner, site.NewSite{Name: "One", Type: "static", Repository: "git.test/acme/site"}); err == nil {
			_, o, err = w.teams.DeleteTx(ctx, tx, c, "acme", true)
		}
		return err
	})
	w.must(func(ctx context.Context, tx *db.Tx) error {
		if err := w.sites.DeleteTx(ctx, tx, of.Owner, one.ID); err != nil {
			return err
		}
		_, again, err := w.teams.DeleteTx(ctx, tx, c, "acme", true)
		if again != nil {
			t.Errorf("an empty team is deleted by %+v", again)
		}
		return err
	})
	jobs := job.New(job.Config{DB: w.db, Queues: map[string]int{"default": 1}})
	w.teams.Work(jobs)
	job.Handle(jobs, job.Policy{}, func(context.Context, site.Purge, int64) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx) }()
	wait.Until(t, "end of the operation", func() bool {
		got, err := w.ops.Get(t.Context(), of.Owner, o.ID)
		return err == nil && got.CompletedAt != 0 && got.Status == operation.Success
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
