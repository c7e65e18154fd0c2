package dashboard

import (
	"net/netip"
	"strings"
	"testing"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
)

func (w *world) key(u account.User) string {
	w.t.Helper()
	_, secret, err := w.dash.Accounts.CreateKey(w.t.Context(), u.ID, account.NewKey{Name: "CI", Scopes: account.Scopes{account.All}})
	must(w.t, err)
	return secret
}

// opens reports whether an API key is valid.
func (w *world) opens(secret string) bool {
	w.t.Helper()
	_, err := w.dash.Accounts.Authenticate(w.t.Context(), secret, netip.MustParseAddr("203.0.113.7"))
	if err != nil && !fault.Is(err, fault.Unauthorized) {
		w.t.Fatal(err)
	}
	return err == nil
}

// A suspended user is signed out at once, reads the reason only after the correct password, keeps all resources, and
// can sign in again when the suspension ends.
func TestSuspend(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	ada := w.user("ada@example.test", false)
	s := w.site(ada, "Blog")
	secret := w.key(ada)
	root, b := w.as("root@example.test"), w.as("ada@example.test")
	base := "/operator/users/" + string(ada.ID)
	root.get(base).want(t, 200, `data-test="open-suspend"`, "Their sites stay online")
	root.post(base+"/suspend", "why", strings.Repeat("x", 201)).want(t, 422, `data-test="problem"`, "The reason is too long")
	root.post(base+"/suspend", "why", "unpaid <since> May").to(t, base)
	if b.get("/account").status != 303 || w.opens(secret) {
		t.Fatal("a suspended user is still in")
	}
	c := w.browser()
	if p := c.post("/sign-in", "email", "ada@example.test", "password", "wrong").want(
		t,
		401,
		"Wrong email address or password",
	); strings.Contains(p.body, "suspended") || strings.Contains(p.body, "npaid") {
		t.Error("a wrong password learns that the account is suspended")
	}
	c.post("/sign-in", "email", "ada@example.test", "password", password).want(
		t, 403, `data-test="problem"`, "This account is suspended", "Unpaid &lt;since&gt; May",
	)
	link, err := w.dash.Accounts.NewSetupLink(t.Context(), ada.ID, account.LinkLife)
	must(t, err)
	c.post("/setup/"+link, "password", "another good password").want(t, 403, "This account is suspended")
	if _, err := w.dash.Accounts.CheckPassword(t.Context(), "ada@example.test", password); err != nil {
		t.Error("the refused link has set a password anyway:", err)
	}
	if got, err := w.dash.Sites.Get(t.Context(), ada.Owner, s.ID); err != nil || got.Status == site.Stopped {
		t.Errorf("the site: %v, %v", got.Status, err)
	}
	root.get(base).want(t, 200, `data-test="suspended"`, "unpaid &lt;since&gt; May", `data-test="open-resume"`)
	root.get("/operator/users").want(t, 200, `<span class="tag">Suspended</span>`)
	w.stale()
	root.post(base+"/resume").want(t, 403, `data-test="problem"`)
	root.post(base+"/resume", "current", password).to(t, base)
	if !w.opens(secret) {
		t.Error("the key does not work again")
	}
	w.as("ada@example.test").get("/account/audit").want(t, 200, "User suspended", "by the operator", "User unsuspended")
	if w.logged("user.suspended") != 1 || w.logged("user.resumed") != 1 {
		t.Error("the audit log lacks an action")
	}
}

// With the box ticked, a suspension stops the user's live sites. Other sites stay as they are.
func TestSuspendStopsSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	ada := w.user("ada@example.test", false)
	live, pending := w.site(ada, "Live"), w.site(ada, "Pending")
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(
			t.Context(),
			`UPDATE sites SET status = 'active', live_deployment = 'dep_1', live_release = 'r' WHERE id = $1`,
			live.ID,
		)
		return err
	}))
	root := w.as("root@example.test")
	root.post("/operator/users/"+string(ada.ID)+"/suspend", "stop", "yes").to(t, "/operator/users/"+string(ada.ID))
	for id, want := range map[site.ID]site.Status{live.ID: site.Stopped, pending.ID: pending.Status} {
		if got, err := w.dash.Sites.Get(t.Context(), ada.Owner, id); err != nil || got.Status != want {
			t.Errorf("%s is %s, want %s (%v)", got.Name, got.Status, want, err)
		}
	}
	if w.logged("site.stopped") != 1 {
		t.Error("the log does not say which site was stopped")
	}
}

// The last active operator can't be removed, and operators can't suspend or delete themselves.
func TestOperatorsStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	root := w.user("root@example.test", true)
	ada := w.user("ada@example.test", false)
	b := w.as("root@example.test")
	own, hers := "/operator/users/"+string(root.ID), "/operator/users/"+string(ada.ID)
	if p := b.get(own).want(t, 200); p.has("open-suspend") || p.has("open-delete-user") {
		t.Error("one can suspend or delete oneself")
	}
	b.post(own+"/suspend").want(t, 409, "You cannot suspend yourself")
	b.post(own+"/delete").want(t, 409, "You cannot delete yourself")
	b.post(own+"/role", "role", "user").want(t, 409, "This is the only operator")
	b.get("/operator").want(t, 200)
	// An operator who never signed in, or is suspended, doesn't count as active.
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, _, err := w.dash.Accounts.InviteTx(t.Context(), tx, "new@example.test", true)
		return err
	}))
	b.post(own+"/role", "role", "user").want(t, 409)
	b.post(hers+"/role", "role", "operator").to(t, hers)
	b.post(hers+"/suspend").to(t, hers)
	b.post(own+"/role", "role", "user").want(t, 409)
	b.post(hers+"/resume").to(t, hers)
	a := w.as("ada@example.test")
	a.get("/operator").want(t, 200)
	// An operator who loses the role is signed out and can't open operator pages.
	a.post(own+"/role", "role", "user").to(t, own)
	if b.get("/operator").status != 303 {
		t.Error("a session outlives the role")
	}
	w.as("root@example.test").get("/operator").want(t, 404)
	a.post(hers+"/role", "role", "user").want(t, 409)
	b = w.as("root@example.test")
	a.post(own+"/role", "role", "operator").to(t, own)
	b.get("/operator").want(t, 200) // a session from before has the role, too
	if p := a.post(hers+"/role", "role", "user"); p.header.Get("Location") != "/sign-in" {
		t.Error("handing over:", p)
	}
	if w.logged("user.role") != 4 {
		t.Errorf("%d changes of role are in the log, want 4", w.logged("user.role"))
	}
}

// A user is deleted with all resources after the operator has confirmed their number.
func TestDeleteUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.user("root@example.test", true)
	ada, eve := w.user("ada@example.test", false), w.user("eve@example.test", false)
	sites := w.sites(ada, 3, "Blog")
	kept := w.site(eve, "Eve's")
	secret := w.key(ada)
	_, _, hook := w.parts(ada, sites[0].ID)
	root, b := w.as("root@example.test"), w.as("ada@example.test")
	base := "/operator/users/" + string(ada.ID)
	root.get(base).want(t, 200, `name="sites" value="3"`, "Type <strong>ada@example.test</strong>", "can&#39;t be undone")
	root.post(base+"/delete", "sites", "3").want(t, 422, "The email doesn&#39;t match")
	root.post(base+"/delete", "sites", "2", "confirm", "ada@example.test").want(t, 409, "now has 3 sites")
	w.stale()
	root.post(base+"/delete", "sites", "3", "confirm", "ada@example.test").want(t, 403)
	if _, err := w.dash.Accounts.User(t.Context(), ada.ID); err != nil {
		t.Fatal(err)
	}
	root.post(base+"/delete", "sites", "3", "confirm", " ada@example.test", "current", password).to(t, "/operator/users")
	if b.get("/account").status != 303 || w.opens(secret) {
		t.Error("a deleted user is still in")
	}
	if _, _, err := w.dash.Accounts.SignIn(t.Context(), "ada@example.test", password, account.Device{}); !fault.Is(
		err,
		fault.Unauthorized,
	) {
		t.Errorf("a deleted user signs in: %v", err)
	}
	for _, s := range sites {
		if _, err := w.dash.Sites.Get(t.Context(), ada.Owner, s.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	if _, err := w.dash.Webhooks.Get(t.Context(), ada.Owner, hook); !fault.Is(err, fault.NotFound) {
		t.Errorf("the webhook: %v", err)
	}
	if _, err := w.dash.Sites.Get(t.Context(), eve.Owner, kept.ID); err != nil {
		t.Errorf("another user's site: %v", err)
	}
	root.get("/operator/users/"+string(ada.ID)).want(t, 404)
	root.get("/operator/audit").want(t, 200, "User deleted", "ada@example.test, with 3 sites", "Deleted user")
	// The address can be used again, and its new user sees nothing of the old one.
	w.user("ada@example.test", false)
	if p := w.as("ada@example.test").get("/account/audit").want(t, 200); strings.Contains(p.body, "User deleted") {
		t.Error("a new user reads an old one's log")
	}
	must(t, w.db.Write(t.Context(), func(tx *db.Tx) error {
		_, err := w.dash.Accounts.DeleteUserTx(t.Context(), tx, audit.Actor{}, eve.ID)
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("a user with sites: %v", err)
		}
		return nil
	}))
}

// An operator who suspends a team's last active owner is warned before and afterwards.
func TestSuspendLastOwner(t *testing.T) {
	t.Parallel()
	w := newConsenting(t)
	w.user("root@example.test", true)
	root := w.as("root@example.test")
	ada, grace := "/operator/users/"+string(w.users["ada@example.test"].ID), "/operator/users/"+string(w.users["grace@example.test"].ID)
	for at, told := range map[string]bool{ada: true, grace: false} {
		if p := root.get(at); strings.Contains(p.body, "last active owner of acme") != told {
			t.Errorf("%s tells of the team: %t, want %t", at, !told, told)
		}
	}
	root.post(ada+"/suspend", "why", "").to(t, ada)
	root.get(ada).want(t, 200, `data-test="no-owner"`, "slipway team set-owner --team acme")
}
