package sso_test

import (
	"encoding/base32"
	"net/netip"
	"testing"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/account/totp"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
)

// require makes single sign-on required or optional in the team, as its owner.
func (g *guild) require(on bool) error {
	c, err := account.MembershipOf(g.t.Context(), g.db, g.owner.ID, g.team.Owner)
	must(g.t, err)
	by := g.owner.Caller()
	by.Owner, by.Role = g.team.Owner, c.Role
	return g.db.Write(g.t.Context(), func(tx *db.Tx) error {
		_, err := g.teams.UpdateTx(g.t.Context(), tx, by, team.Patch{RequireSSO: &on})
		return err
	})
}

// within reports whether a user's session may act in the team.
func (g *guild) within(u account.User, s account.Session) error {
	_, err := g.accounts.CallerIn(g.t.Context(), u, s, g.team.Owner)
	return err
}

func (g *guild) withPassword(u account.User) account.Session {
	g.t.Helper()
	s, _, err := g.accounts.SignIn(g.t.Context(), u.Email, password, device)
	must(g.t, err)
	return s
}

// teamKey creates a user's API key for the team.
func (g *guild) teamKey(u account.User, s account.Session) string {
	g.t.Helper()
	c, err := g.accounts.CallerIn(g.t.Context(), u, s, g.team.Owner)
	must(g.t, err)
	var secret string
	must(g.t, g.db.Write(g.t.Context(), func(tx *db.Tx) (err error) {
		_, secret, err = g.accounts.CreateKeyTx(g.t.Context(), tx, c, account.NewKey{Name: "k", Scopes: account.Scopes{account.SitesRead}})
		return err
	}))
	return secret
}

func (g *guild) passes(secret string) error {
	_, err := g.accounts.Authenticate(g.t.Context(), secret, netip.MustParseAddr("203.0.113.7"))
	return err
}

// signInAs signs in with the team's provider as a person with this subject and email.
func (g *guild) signInAs(subject, email string) (account.User, account.Session) {
	g.t.Helper()
	g.says(map[string]any{"sub": subject, "email": email})
	s, err := g.signIn()
	must(g.t, err)
	u, err := g.accounts.User(g.t.Context(), s.User)
	must(g.t, err)
	return u, s
}

// When single sign-on is required, sessions must come from the team's provider. API keys and requests in progress work
// only while their user is linked to it.
func TestRequired(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	owned := g.withPassword(g.owner)
	old := g.teamKey(g.owner, owned)
	wantCode(t, g.require(true), "sso_not_proven")
	p := g.offer(g.team, account.RoleDeveloper)
	wantCode(t, g.require(true), "sso_not_proven")
	g.own(g.team, p, "acme.test")
	ada, came := g.signInAs("ada", "ada@acme.test")
	key := g.teamKey(ada, came)

	g.says(map[string]any{"sub": "owner", "email": "owner@acme.test"})
	must(t, g.link(g.owner))
	must(t, g.db.Admin(t.Context(), `UPDATE sso_identities SET used_at = used_at - 16 * 60 * 1000 WHERE user_id = '`+string(g.owner.ID)+`'`))
	wantCode(t, g.require(true), "sso_not_proven") // the owner's sign-in is too old
	_, mine := g.signInAs("owner", "owner@acme.test")
	must(t, g.require(true))

	must(t, g.within(g.owner, mine))
	must(t, g.within(ada, came))
	must(t, g.passes(key))
	must(t, g.passes(old)) // its user is linked now
	wantCode(t, g.within(g.owner, owned), "sso_required")

	before, err := g.accounts.CallerIn(t.Context(), ada, came, g.team.Owner)
	must(t, err)
	must(t, g.accounts.Holds(t.Context(), before))
	list, err := g.Identities(t.Context(), ada.ID)
	must(t, err)
	must(t, g.db.Admin(t.Context(), `DELETE FROM sso_identities WHERE id = '`+string(list[0].ID)+`'`))
	wantCode(t, g.passes(key), "sso_required")
	wantCode(t, g.within(ada, came), "signed_out")
	wantCode(t, g.accounts.Holds(t.Context(), before), "signed_out")
	err = g.db.Write(t.Context(), func(tx *db.Tx) error {
		return g.accounts.AuditTx(t.Context(), tx, before.Actor(device.Addr), audit.Event{Action: "site.updated"})
	})
	wantCode(t, err, "signed_out")

	// Sessions from another team's provider or the operator's provider don't count.
	other := g.newTeam(g.user("eve@evil.test", password), "Evil")
	eve := g.offer(other, account.RoleDeveloper)
	s, err := g.elsewhere(eve, g.owner)
	must(t, err)
	wantCode(t, g.within(g.owner, s), "team_session")

	err = g.db.Write(t.Context(), func(tx *db.Tx) error {
		_, _, err := g.DeleteForTx(t.Context(), tx, g.team.Owner, p.ID)
		return err
	})
	wantCode(t, err, "last_provider")
	must(t, g.require(false))
	must(t, g.within(g.owner, owned))
}

// elsewhere links a user to another provider and signs in with it.
func (g *guild) elsewhere(p sso.Provider, u account.User) (account.Session, error) {
	g.provider = p
	g.says(map[string]any{"sub": "elsewhere", "email": u.Email})
	if err := g.link(u); err != nil {
		return account.Session{}, err
	}
	return g.signIn()
}

// Linking the team's account in a session that began with a password makes the session count as the provider's.
func TestLinkingOpensTheTeam(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	g.offer(g.team, "")
	g.proven()
	must(t, g.require(true))
	s := g.withPassword(g.owner)
	wantCode(t, g.within(g.owner, s), "sso_required")
	p, err := g.prove(sso.Start{Session: s.ID})
	must(t, err)
	must(t, g.Link(t.Context(), p, audit.Actor{User: g.owner.ID, Session: s.ID, Addr: device.Addr}))
	must(t, g.within(g.owner, s))
	list, err := g.Identities(t.Context(), g.owner.ID)
	must(t, err)
	must(t, g.Unlink(t.Context(), audit.Actor{User: g.owner.ID, Session: s.ID}, list[0].ID))
	wantCode(t, g.within(g.owner, s), "sso_required")
}

// proven links the owner and signs in with the team's provider.
func (g *guild) proven() (account.User, account.Session) {
	g.t.Helper()
	g.says(map[string]any{"sub": "owner", "email": "owner@acme.test"})
	must(g.t, g.link(g.owner))
	return g.signInAs("owner", "owner@acme.test")
}

// If the provider is down or deleted, emergency owners with a second factor can sign in, which is logged once per
// session. The operator can make single sign-on optional.
func TestNoLockOut(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, "")
	g.proven()
	must(t, g.require(true))
	emergency := func(u account.User, on bool) error {
		by := g.owner.Caller()
		by.Owner, by.Role = g.team.Owner, account.RoleOwner
		return g.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := g.teams.SetEmergencyTx(t.Context(), tx, by, u.ID, on)
			return err
		})
	}
	wantCode(t, emergency(g.owner, true), "emergency_owner_unfit") // no second factor
	g.factor(g.owner)
	must(t, emergency(g.owner, true))
	must(t, g.db.Write(t.Context(), func(tx *db.Tx) error { _, _, err := g.DeleteTx(t.Context(), tx, p.ID); return err })) // the operator

	s := g.bare(g.owner)
	must(t, g.within(g.owner, s))
	must(t, g.within(g.owner, s))
	must(t, g.within(g.owner, g.bare(g.owner)))
	used := 0
	for _, a := range g.actions(g.team) {
		if a == "team.break_glass" {
			used++
		}
	}
	if used != 2 {
		t.Errorf("%d uses in the log, want one for each session", used)
	}
	must(t, emergency(g.owner, false))
	wantCode(t, g.within(g.owner, s), "sso_required")
	must(t, g.db.Write(t.Context(), func(tx *db.Tx) error { _, err := g.teams.FreeTx(t.Context(), tx, g.team.Slug); return err }))
	must(t, g.within(g.owner, s))
	err := g.db.Write(t.Context(), func(tx *db.Tx) error { _, err := g.teams.FreeTx(t.Context(), tx, g.team.Slug); return err })
	if !fault.Is(err, fault.Conflict) {
		t.Errorf("made optional twice: %v", err)
	}
}

// factor adds an authenticator app to a user.
func (g *guild) factor(u account.User) {
	g.t.Helper()
	must(g.t, g.db.Admin(g.t.Context(), `INSERT INTO second_factors (user_id, secret, confirmed, last_step, created_at) VALUES ('`+string(u.ID)+`', 'sealed', TRUE, 0, 1)`))
}

// bare returns a session that has passed the second factor.
func (g *guild) bare(u account.User) account.Session {
	g.t.Helper()
	s := g.withPassword(u)
	must(g.t, g.db.Admin(g.t.Context(), `UPDATE sessions SET pending = FALSE, method = 'totp' WHERE id = '`+string(s.ID)+`'`))
	return s
}

// A team has at most two emergency owners, and a member who is no longer an owner isn't one.
func TestEmergencyOwners(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	by := g.owner.Caller()
	by.Owner, by.Role = g.team.Owner, account.RoleOwner
	var owners []account.User
	for _, name := range []string{"a", "b", "c"} {
		u := g.user(name+"@acme.test", password)
		g.factor(u)
		must(t, g.db.Write(t.Context(), func(tx *db.Tx) error { _, err := g.teams.AppointTx(t.Context(), tx, g.team.Slug, u.ID); return err }))
		owners = append(owners, u)
	}
	set := func(u account.User) error {
		return g.db.Write(t.Context(), func(tx *db.Tx) error {
			_, err := g.teams.SetEmergencyTx(t.Context(), tx, by, u.ID, true)
			return err
		})
	}
	must(t, set(owners[0]))
	must(t, set(owners[1]))
	must(t, set(owners[1])) // setting it again
	wantCode(t, set(owners[2]), "too_many_emergency_owners")
	must(t, g.db.Write(t.Context(), func(tx *db.Tx) error {
		if _, err := g.teams.ChangeTx(t.Context(), tx, by, owners[0].ID, account.RoleViewer); err != nil {
			return err
		}
		_, err := g.teams.ChangeTx(t.Context(), tx, by, owners[0].ID, account.RoleOwner)
		return err
	}))
	if m, err := account.MembershipOf(t.Context(), g.db, owners[0].ID, g.team.Owner); err != nil || m.BreakGlass {
		t.Errorf("after a demotion %+v, %v", m, err)
	}
	must(t, set(owners[2]))
}

// A team's provider signs in to its team only: not to the personal account, not to other teams, never as an operator.
// Its sessions can't link accounts, and operators can't link one to it.
func TestTeamProviderVouchesForItsTeamAlone(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, account.RoleDeveloper)
	other := g.newTeam(g.owner, "Other")
	g.says(map[string]any{"sub": "owner", "email": "owner@acme.test"})
	must(t, g.link(g.owner))
	must(t, g.db.Admin(t.Context(), `UPDATE users SET admin = TRUE WHERE id = '`+string(g.owner.ID)+`'`))

	s, token, err := g.enter()
	must(t, err)
	s, u, err := g.accounts.Session(t.Context(), token, device)
	if err != nil || s.Only != g.team.Owner || u.Admin {
		t.Fatalf("the session is %+v of %+v, %v", s, u, err)
	}
	must(t, g.within(u, s))
	for what, owner := range map[string]account.OwnerID{"personal account": u.Owner, "other team": other.Owner} {
		_, err := g.accounts.CallerIn(t.Context(), u, s, owner)
		wantCode(t, err, "team_session")
		if t.Failed() {
			t.Fatal(what)
		}
		err = g.db.Write(t.Context(), func(tx *db.Tx) error {
			by := audit.Actor{User: u.ID, Owner: owner, Session: s.ID}
			return g.accounts.AuditTx(t.Context(), tx, by, audit.Event{Action: "key.created"})
		})
		wantCode(t, err, "team_session")
	}
	back, err := g.prove(sso.Start{Session: s.ID})
	must(t, err)
	wantCode(t, g.Link(t.Context(), back, audit.Actor{User: u.ID, Session: s.ID}), "operator_link")
	must(t, g.db.Admin(t.Context(), `UPDATE users SET admin = FALSE WHERE id = '`+string(u.ID)+`'`))
	back, err = g.prove(sso.Start{Session: s.ID})
	must(t, err)
	wantCode(t, g.Link(t.Context(), back, audit.Actor{User: u.ID, Session: s.ID}), "team_session")

	root, err := g.accounts.CreateUser(t.Context(), "root@acme.test", password, true)
	must(t, err)
	g.says(map[string]any{"sub": "root", "email": "root@acme.test"})
	wantCode(t, g.link(root), "operator_link")
	if list, err := g.Linkable(t.Context(), root); err != nil || len(list) != 1 || list[0].Owner != "" {
		t.Errorf("an operator may link %+v, %v", list, err)
	}

	// The session ends with the provider, even if the sign-in happens while the provider is removed.
	must(t, g.db.Admin(t.Context(), `DELETE FROM sso_providers WHERE id = '`+string(p.ID)+`'`))
	if _, _, err := g.accounts.Session(t.Context(), token, device); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the session outlives its provider: %v", err)
	}
	if list, err := g.accounts.Sessions(t.Context(), u.ID); err != nil || len(list) != 0 {
		t.Errorf("the sessions are %+v, %v", list, err)
	}
}

// enter signs in with the provider and also returns the session's token.
func (g *guild) enter() (account.Session, string, error) {
	g.t.Helper()
	p, err := g.prove(sso.Start{})
	must(g.t, err)
	return g.SSO.SignIn(g.t.Context(), p, device)
}

// Removing a member ends the member's sessions from the team's provider.
func TestRemovedMembersTeamSessionsEnd(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	p := g.offer(g.team, account.RoleDeveloper)
	g.own(g.team, p, "acme.test")
	g.says(map[string]any{"sub": "ada", "email": "ada@acme.test"})
	_, token, err := g.enter()
	must(t, err)
	_, ada, err := g.accounts.Session(t.Context(), token, device)
	must(t, err)
	c, err := g.accounts.CallerFor(t.Context(), g.db, g.owner, g.team.Owner)
	must(t, err)
	must(t, g.db.Write(t.Context(), func(tx *db.Tx) error { _, _, err := g.teams.RemoveTx(t.Context(), tx, c, ada.ID); return err }))
	if _, _, err := g.accounts.Session(t.Context(), token, device); !fault.Is(err, fault.Unauthorized) {
		t.Errorf("the session still works: %v", err)
	}
}

// If two-factor authentication is required, the session itself must have passed it; owning a passkey isn't enough. A
// session that hasn't can't add or remove factors.
func TestTwoFactorIsOfTheSession(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	ctx := t.Context()
	by := func(s account.Session) audit.Actor {
		return audit.Actor{User: g.owner.ID, Owner: g.owner.Owner, Session: s.ID, Addr: device.Addr}
	}
	demand := func(s account.Session, on bool) error {
		c, err := g.accounts.CallerIn(ctx, g.owner, s, g.team.Owner)
		must(t, err)
		return g.db.Write(ctx, func(tx *db.Tx) error {
			_, err := g.teams.UpdateTx(ctx, tx, c, team.Patch{RequireTwoFactor: &on})
			return err
		})
	}
	s := g.withPassword(g.owner)
	wantCode(t, demand(s, true), "two_factor_missing")
	must(t, g.db.Admin(ctx, `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
		VALUES ('psk_1', '`+string(g.owner.ID)+`', 'c', '{}', 'Key', 1, 0)`))
	wantCode(t, demand(s, true), account.StepUpCode) // a member must comply before requiring it
	must(t, g.db.Admin(ctx, `UPDATE teams SET require_2fa = TRUE`))
	wantCode(t, g.within(g.owner, s), account.StepUpCode)
	before := audit.Actor{User: g.owner.ID, Owner: g.team.Owner, Session: s.ID, Rights: "owner "}
	wantCode(t, g.db.Write(ctx, func(tx *db.Tx) error {
		return g.accounts.AuditTx(ctx, tx, before, audit.Event{Action: "site.updated"})
	}), account.StepUpCode)

	// Knowing only the password, an attacker can't add a factor.
	wantCode(t, g.accounts.MayChangeFactors(ctx, g.db, by(s)), account.StepUpCode)
	offer, err := g.accounts.OfferTOTP(ctx, s)
	must(t, err)
	_, err = g.accounts.ConfirmTOTP(ctx, by(s), offer.Token, codeOf(t, offer.Secret))
	wantCode(t, err, account.StepUpCode)
	wantCode(t, g.accounts.StepUp(ctx, by(s), "aaaa-bbbb-cccc-dddd"), "wrong_code")

	// Adding the first factor raises the session that adds it.
	must(t, g.db.Admin(ctx, `DELETE FROM passkeys`))
	wantCode(t, g.within(g.owner, s), "two_factor_required")
	offer, err = g.accounts.OfferTOTP(ctx, s)
	must(t, err)
	codes, err := g.accounts.ConfirmTOTP(ctx, by(s), offer.Token, codeOf(t, offer.Secret))
	must(t, err)
	must(t, g.within(g.owner, s))

	// A recovery code, which works once, raises another session that began before the factor.
	must(t, g.db.Admin(ctx, `UPDATE sessions SET method = 'password' WHERE id = '`+string(s.ID)+`'`))
	wantCode(t, g.within(g.owner, s), account.StepUpCode)
	must(t, g.accounts.StepUp(ctx, by(s), codes[0]))
	must(t, g.within(g.owner, s))
	must(t, g.accounts.MayChangeFactors(ctx, g.db, by(s)))
	wantCode(t, g.accounts.StepUp(ctx, by(s), codes[0]), "wrong_code")
	must(t, demand(s, false))
	must(t, demand(s, true))
}

// An emergency owner with a passkey can't sign in with the password alone.
func TestEmergencyOwnersUseTheirSecondFactor(t *testing.T) {
	t.Parallel()
	g := newGuild(t)
	g.offer(g.team, "")
	g.proven()
	must(t, g.require(true))
	must(t, g.db.Admin(t.Context(), `INSERT INTO passkeys (id, user_id, credential, record, name, created_at, used_at)
		VALUES ('psk_1', '`+string(g.owner.ID)+`', 'c', '{}', 'Key', 1, 0)`))
	must(t, g.db.Admin(t.Context(), `UPDATE team_members SET break_glass = TRUE`))
	s := g.withPassword(g.owner)
	wantCode(t, g.within(g.owner, s), account.StepUpCode)
	must(t, g.db.Admin(t.Context(), `UPDATE sessions SET method = 'passkey' WHERE id = '`+string(s.ID)+`'`))
	must(t, g.within(g.owner, s))
}

// codeOf returns the current authenticator code of a secret.
func codeOf(t *testing.T, secret string) string {
	t.Helper()
	key, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	must(t, err)
	return totp.HOTP(key, uint64(time.Now().Unix()/30))
}
