package teams

import (
	"context"
	"slices"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/sso"
	"slipway/internal/tenant/team"
	"slipway/internal/web/dashboard/shell"
)

func (d *Pages) ssoRoutes() []shell.Route {
	write := func(path string, do shellHandler) shell.Route {
		return shell.Post("/teams/{team}/sso"+path, shell.User, do, d.ssoPage).Takes(account.TeamWrite).Wide().Least(account.RoleOwner)
	}
	return []shell.Route{
		shell.Get("/teams/{team}/sso", shell.User, d.ssoPage).Takes(account.TeamWrite).Wide(),
		write("", d.addProvider),
		write("/require", d.requireSSO),
		write("/emergency", d.setEmergency),
		write("/{provider}", d.saveProvider),
		write("/{provider}/delete", d.deleteProvider),
		write("/{provider}/domains", d.addDomain),
		write("/{provider}/domains/{domain}/verify", d.checkDomain),
		write("/{provider}/domains/{domain}/delete", d.deleteDomain),
	}
}

// offered is a provider with its domains.
type offered struct {
	sso.Provider
	Domains  []sso.Domain
	Callback string
}

type ssoData struct {
	head
	Providers []offered
	Owners    []team.Member
	Unlinked  int  // members who would be blocked
	Linked    bool // whether the user has linked an account of a team's provider
	IsOwner   bool
}

func (d *Pages) ssoPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	h, err := d.headOf(ctx, q)
	if err != nil || d.SSO == nil {
		return shell.Answer{}, orMissing(err)
	}
	data := ssoData{head: h, IsOwner: q.Caller.Role == account.RoleOwner}
	list, err := d.SSO.OfTeam(ctx, q.Caller.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	domains, err := d.SSO.Domains(ctx, q.Caller.Owner)
	if err != nil {
		return shell.Answer{}, err
	}
	for _, p := range list {
		own := slices.DeleteFunc(slices.Clone(domains), func(one sso.Domain) bool { return one.Provider != p.ID })
		data.Providers = append(data.Providers, offered{p, own, d.SSO.Callback(p.ID)})
	}
	members, _, err := d.Teams.Members(ctx, q.Caller.Owner, team.MemberFilter{})
	for _, m := range members {
		if !m.SSO && !m.Emergency {
			data.Unlinked++
		}
		if m.Role == account.RoleOwner {
			data.Owners = append(data.Owners, m)
		}
		data.Linked = data.Linked || m.SSO && m.User == q.User.ID
	}
	return shell.Page("team_sso", "Single sign-on of "+h.Team.Name, data), err
}

func orMissing(err error) error {
	if err == nil {
		err = fault.Missing("page")
	}
	return err
}

// changeSSO performs a change of the team's sign-in and redirects to its page.
func (d *Pages) changeSSO(
	ctx context.Context, q *shell.Request, says string, fn func(tx *db.Tx) (audit.Event, error),
) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	err := d.ActOn(ctx, q, fn)
	return shell.GoTo("/teams/"+q.Caller.Slug+"/sso", says), shell.AtCode(err, map[string]string{
		"invalid_name": "name", "invalid_issuer": "issuer", "provider_exists": "issuer", "invalid_tenant": "tenant", "invalid_client": "client",
		"invalid_domain": "domain", "domain_exists": "domain", "too_many_domains": "domain",
	})
}

func (d *Pages) addProvider(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeSSO(ctx, q, "Provider added. Register its redirect URI at the provider", func(tx *db.Tx) (audit.Event, error) {
		p, err := d.SSO.CreateForTx(ctx, tx, q.Caller.Owner, sso.NewTeamProvider{
			Kind: sso.Kind(q.Value("kind")), Name: q.Value("name"), Issuer: q.Value("issuer"), Tenant: q.Value("tenant"),
			ClientID: q.Value("client"),
			Secret:   sso.Secret(q.Value("secret")), JoinRole: account.Role(q.Value("join")),
		})
		return audit.Event{Action: "sso_provider.added", Subject: string(p.ID), Detail: p.Issuer}, err
	})
}

func (d *Pages) saveProvider(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	name, client, join := q.Value("name"), q.Value("client"), account.Role(q.Value("join"))
	c := sso.TeamProviderPatch{Name: &name, ClientID: &client, JoinRole: &join}
	if secret := sso.Secret(q.Value("secret")); secret != "" { // the form never shows the secret; empty keeps it
		c.Secret = &secret
	}
	return d.changeSSO(ctx, q, "Saved", func(tx *db.Tx) (audit.Event, error) {
		p, err := d.SSO.ChangeForTx(ctx, tx, q.Caller.Owner, shell.PathID[sso.ProviderID](q, "provider"), c)
		return audit.Event{Action: "sso_provider.updated", Subject: string(p.ID), Detail: p.Name}, err
	})
}

func (d *Pages) deleteProvider(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeSSO(ctx, q, "Provider deleted", func(tx *db.Tx) (audit.Event, error) {
		p, _, err := d.SSO.DeleteForTx(ctx, tx, q.Caller.Owner, shell.PathID[sso.ProviderID](q, "provider"))
		return audit.Event{Action: "sso_provider.removed", Subject: string(p.ID), Detail: p.Issuer}, err
	})
}

func (d *Pages) addDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeSSO(ctx, q, "Domain added. Add its TXT record, then check it", func(tx *db.Tx) (audit.Event, error) {
		one, err := d.SSO.ClaimTx(ctx, tx, q.Caller.Owner, shell.PathID[sso.ProviderID](q, "provider"), q.Value("domain"))
		return audit.Event{Action: "sso_domain.added", Subject: string(one.ID), Detail: one.Name}, err
	})
}

func (d *Pages) checkDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	if d.SSO == nil {
		return shell.Answer{}, fault.Missing("page")
	}
	one, err := d.SSO.Domain(ctx, d.DB, q.Caller.Owner, shell.PathID[sso.ProviderID](q, "provider"), shell.PathID[sso.DomainID](q, "domain"))
	if err != nil {
		return shell.Answer{}, err
	}
	found, lookErr := d.SSO.Look(ctx, one)
	return d.changeSSO(ctx, q, "Domain checked", func(tx *db.Tx) (audit.Event, error) {
		one, err := d.SSO.VerifyTx(ctx, tx, one.ID, found, lookErr)
		return audit.Event{Action: "sso_domain.checked", Subject: string(one.ID), Detail: one.Name}, err
	})
}

func (d *Pages) deleteDomain(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	return d.changeSSO(ctx, q, "Domain removed", func(tx *db.Tx) (audit.Event, error) {
		one, err := d.SSO.UnclaimTx(ctx, tx, q.Caller.Owner, shell.PathID[sso.ProviderID](q, "provider"), shell.PathID[sso.DomainID](q, "domain"))
		return audit.Event{Action: "sso_domain.removed", Subject: string(one.ID), Detail: one.Name}, err
	})
}

func (d *Pages) requireSSO(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	on := q.Value("to") == "on"
	detail, says := "single sign-on optional", "Single sign-on is optional"
	if on {
		detail, says = "single sign-on required", "Single sign-on is required"
	}
	err := d.DB.Write(ctx, func(tx *db.Tx) error {
		// Write the log first: it checks the owner's rights, which this session may lose by the change. The lock
		// serializes both with a concurrent removal of the user.
		if err := account.LockOwnerTx(ctx, tx, q.Caller.Owner); err != nil {
			return err
		}
		err := d.Accounts.AuditTx(ctx, tx, q.Actor(), audit.Event{Action: "team.updated", Subject: q.Caller.Team, Detail: detail})
		if err == nil {
			_, err = d.Teams.UpdateTx(ctx, tx, q.Caller, team.Patch{RequireSSO: &on})
		}
		return err
	})
	return shell.GoTo("/teams/"+q.Caller.Slug+"/sso", says), err
}

func (d *Pages) setEmergency(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	user, on := account.UserID(q.Value("user")), q.Value("to") == "on"
	detail := map[bool]string{true: "emergency owner", false: "no emergency owner"}[on]
	return d.changeSSO(ctx, q, "Saved", func(tx *db.Tx) (audit.Event, error) {
		_, err := d.Teams.SetEmergencyTx(ctx, tx, q.Caller, user, on)
		return audit.Event{Action: "member.emergency", Subject: string(user), About: user, Detail: detail}, err
	})
}
