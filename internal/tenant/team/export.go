package team

import (
	"context"

	"slipway/internal/platform/db"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
)

// Export is what the installation stores about a user, as a document for them. It holds no secret. The tags are the
// document's form, which the command line and the API share.
type Export struct {
	ExportedAt string          `json:"exportedAt"`
	ID         string          `json:"id"`
	Email      string          `json:"email"`
	Role       string          `json:"role" doc:"operator or user."`
	CreatedAt  string          `json:"createdAt"`
	Suspended  string          `json:"suspendedAt,omitempty"`
	Reason     string          `json:"suspendedReason,omitempty"`
	TwoFactor  bool            `json:"twoFactor"`
	Passkeys   []exportPasskey `json:"passkeys"`
	Sessions   []exportSession `json:"sessions"`
	Keys       []exportKey     `json:"keys"`
	Teams      []exportTeam    `json:"teams"`
	Sites      []exportSite    `json:"sites" doc:"Sites of the personal account."`
	Webhooks   []exportWebhook `json:"webhooks"`
	AuditLog   []exportEntry   `json:"auditLog" doc:"What the user did, and what was done to them, the newest first."`
	Truncated  bool            `json:"truncated" doc:"Whether the audit log has more than the newest 10,000 entries."`
}

type exportPasskey struct {
	Name      string `json:"name"`
	CreatedAt string `json:"createdAt"`
	UsedAt    string `json:"usedAt,omitempty"`
}

type exportSession struct {
	Browser   string `json:"browser"`
	Address   string `json:"address"`
	Method    string `json:"method"`
	CreatedAt string `json:"createdAt"`
	SeenAt    string `json:"seenAt"`
}

type exportKey struct {
	Name        string   `json:"name"`
	Scopes      []string `json:"scopes"`
	CreatedAt   string   `json:"createdAt"`
	UsedAt      string   `json:"usedAt,omitempty"`
	UsedAddress string   `json:"usedAddress,omitempty"`
}

type exportTeam struct {
	Slug string `json:"slug"`
	Role string `json:"role"`
}

type exportSite struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Slug       string `json:"slug"`
	Type       string `json:"type"`
	Repository string `json:"repository,omitempty"`
	CreatedAt  string `json:"createdAt"`
}

type exportWebhook struct {
	URL    string   `json:"url"`
	Events []string `json:"events"`
}

type exportEntry struct {
	At      string `json:"at"`
	Action  string `json:"action"`
	Detail  string `json:"detail,omitempty"`
	Address string `json:"address,omitempty" doc:"IP address, of what the user did."`
	Via     string `json:"via,omitempty"`
}

// maxEntries caps the entries of the audit log in an Export.
const maxEntries = 10_000

// Export returns what is stored about a user.
func (s *Teams) Export(ctx context.Context, u account.User) (x Export, err error) {
	x = Export{
		ExportedAt: db.Now().String(), ID: string(u.ID), Email: u.Email, Role: "user", CreatedAt: u.CreatedAt.String(),
		Suspended: when(u.Suspended), Reason: u.Why,
		Passkeys: []exportPasskey{}, Sessions: []exportSession{}, Keys: []exportKey{}, Teams: []exportTeam{}, Sites: []exportSite{},
		Webhooks: []exportWebhook{}, AuditLog: []exportEntry{},
	}
	if u.Admin {
		x.Role = "operator"
	}
	for _, part := range []func(context.Context, account.User, *Export) error{
		s.exportAccount, s.exportTeams, s.exportSites, s.exportAudit,
	} {
		if err := part(ctx, u, &x); err != nil {
			return Export{}, err
		}
	}
	return x, nil
}

func when(t db.Time) string {
	if t == 0 {
		return ""
	}
	return t.String()
}

func (s *Teams) exportAccount(ctx context.Context, u account.User, x *Export) error {
	factor, err := s.c.Accounts.SecondFactor(ctx, u.ID)
	if err != nil {
		return err
	}
	x.TwoFactor = factor.On
	passkeys, err := s.c.Accounts.ListPasskeys(ctx, u.ID)
	if err != nil {
		return err
	}
	for _, p := range passkeys {
		x.Passkeys = append(x.Passkeys, exportPasskey{p.Name, p.CreatedAt.String(), when(p.UsedAt)})
	}
	sessions, err := s.c.Accounts.Sessions(ctx, u.ID)
	if err != nil {
		return err
	}
	for _, one := range sessions {
		x.Sessions = append(x.Sessions, exportSession{one.Agent, one.Addr, string(one.Method), one.CreatedAt.String(), when(one.SeenAt)})
	}
	keys, err := s.c.Accounts.ListKeys(ctx, u.Caller())
	if err != nil {
		return err
	}
	for _, k := range keys {
		scopes := []string{}
		for _, scope := range k.Scopes {
			scopes = append(scopes, string(scope))
		}
		x.Keys = append(x.Keys, exportKey{k.Name, scopes, k.CreatedAt.String(), when(k.UsedAt), k.UsedAddr})
	}
	return nil
}

func (s *Teams) exportTeams(ctx context.Context, u account.User, x *Export) error {
	list, err := s.List(ctx, u.ID)
	for _, t := range list {
		x.Teams = append(x.Teams, exportTeam{t.Slug, string(t.Role)})
	}
	return err
}

func (s *Teams) exportSites(ctx context.Context, u account.User, x *Export) error {
	for page := 1; ; page++ {
		list, total, err := s.c.Sites.List(ctx, u.Owner, site.Filter{Page: page, Limit: 100})
		if err != nil {
			return err
		}
		for _, one := range list {
			x.Sites = append(x.Sites, exportSite{
				string(one.ID), one.Name, one.Slug, string(one.Type), one.Repository, one.CreatedAt.String(),
			})
		}
		if len(list) == 0 || len(x.Sites) >= total {
			break
		}
	}
	hooks, err := s.c.Hooks.List(ctx, u.Owner)
	for _, h := range hooks {
		x.Webhooks = append(x.Webhooks, exportWebhook{h.URL, h.Events})
	}
	return err
}

func (s *Teams) exportAudit(ctx context.Context, u account.User, x *Export) error {
	before := ""
	for {
		list, err := s.c.Accounts.Audit(ctx, audit.Filter{User: u.ID, Before: before, Limit: 200})
		if err != nil || len(list) == 0 {
			return err
		}
		for _, e := range list {
			line := exportEntry{At: e.At.String(), Action: e.Action, Detail: e.Detail}
			if e.User == u.ID { // where others did something from is theirs
				line.Address, line.Via = e.Addr, e.Via
			}
			x.AuditLog = append(x.AuditLog, line)
		}
		if x.Truncated = len(x.AuditLog) >= maxEntries; x.Truncated {
			return nil
		}
		before = list[len(list)-1].ID
	}
}
