package account

import (
	"context"
	"slices"
	"strings"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/audit"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
)

type keysData struct {
	Keys  []keyRow
	Fresh account.KeyID // just created
}

type keyRow struct {
	account.Key
	Maker     string // team member who created it; empty in a personal account
	SiteNames []string
	Expired   bool
}

func (d *Pages) keysPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	data, err := d.keysData(ctx, q)
	return shell.Page("account_keys", "API keys", data), err
}

func (d *Pages) keysData(ctx context.Context, q *shell.Request) (data keysData, err error) {
	keys, err := d.Accounts.ListKeys(ctx, q.Caller)
	if err != nil {
		return data, err
	}
	for _, k := range keys {
		row := keyRow{Key: k, Expired: k.Expires != 0 && k.Expires <= db.Now()}
		if row.SiteNames, err = d.siteNames(ctx, q, k.Sites); err != nil {
			return data, err
		}
		if q.Caller.Team != "" {
			u, err := d.Accounts.User(ctx, k.By)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return data, err
			}
			row.Maker = u.Email
		}
		data.Keys = append(data.Keys, row)
	}
	return data, nil
}

// siteNames returns the sites' names, or the IDs of deleted sites.
func (d *Pages) siteNames(ctx context.Context, q *shell.Request, ids []site.ID) (names []string, err error) {
	for _, id := range ids {
		s, err := d.Sites.Get(ctx, q.Caller.Owner, id)
		switch {
		case err == nil:
			names = append(names, s.Name)
		case fault.Is(err, fault.NotFound):
			names = append(names, string(id))
		default:
			return nil, err
		}
	}
	return names, nil
}

// scopeChoice is a noun's scopes in the form.
type scopeChoice struct {
	Noun, What  string
	Read, Write account.Scope // empty if it doesn't exist
}

var scopeChoices = []scopeChoice{
	{"Sites", "view, create, update, stop and delete sites", account.SitesRead, account.SitesWrite},
	{"Deployments", "view deployments and logs; deploy, cancel, roll back", account.DeploymentsRead, account.DeploymentsWrite},
	{"Domains", "view, add, verify and remove domains", account.DomainsRead, account.DomainsWrite},
	{"Environment", "view, set and delete environment variables", account.EnvRead, account.EnvWrite},
	{"Webhooks", "view webhooks and deliveries; create, update, redeliver", account.WebhooksRead, account.WebhooksWrite},
	{"Backups", "view and download backups, download databases; create and restore", account.BackupsRead, account.BackupsWrite},
	{"API keys", "create and revoke keys with the same scopes or fewer", "", account.KeysWrite},
	{"Account", "view the account of the key", account.AccountRead, ""},
	{"OAuth apps", "register, change and delete apps", "", account.AppsWrite},
}

// lives lists the selectable lifetimes of a key.
var lives = []struct {
	Value, Name string
	Life        time.Duration // 0: unlimited
}{
	{"30d", "30 days", 30 * 24 * time.Hour},
	{"90d", "90 days", 90 * 24 * time.Hour},
	{"365d", "One year", 365 * 24 * time.Hour},
	{"7d", "7 days", 7 * 24 * time.Hour},
	{"never", "Never", 0},
}

// A scopePreset selects the scopes for a common use of a key.
type scopePreset struct {
	ID, Name string
	Scopes   []string
}

var ScopePresets = []scopePreset{
	{"deploy", "Deploy from CI", scopeNames(account.SitesRead, account.DeploymentsWrite)},
	{
		"read",
		"Read only",
		scopeNames(account.SitesRead, account.DeploymentsRead, account.DomainsRead, account.EnvRead,
			account.WebhooksRead, account.BackupsRead, account.AccountRead),
	},
	{"manage", "Manage sites", scopeNames(account.SitesWrite, account.DeploymentsWrite, account.DomainsWrite, account.EnvWrite)},
}

func scopeNames(list ...account.Scope) (names []string) {
	for _, s := range list {
		names = append(names, string(s))
	}
	return names
}

type newKeyData struct {
	Presets []scopePreset
	Scopes  []scopeChoice
	Lives   any
	Sites   []site.Site
	More    int  // number of sites not listed
	Service bool // whether the caller can create a key that outlives them
}

func (d *Pages) newKeyPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	sites, total, err := d.Sites.List(ctx, q.Caller.Owner, site.Filter{Page: 1, Limit: shell.MaxChoices, Only: q.Only()})
	return shell.Page("account_key_new", "Create API key", newKeyData{
		ScopePresets, scopeChoices, lives, sites, total - len(sites), q.Caller.Team != "" && q.Caller.Role.AtLeast(account.RoleAdmin),
	}), err
}

type madeKeyData struct {
	Key    account.Key
	Secret string
}

// Try returns a call that the key allows, or "" if all require a site ID.
func (m madeKeyData) Try() string {
	for _, t := range []struct {
		scope account.Scope
		path  string
	}{
		{account.AccountRead, "/account"},
		{account.SitesRead, "/sites"},
		{account.DomainsRead, "/domains"},
		{account.WebhooksRead, "/webhooks"},
		{account.KeysWrite, "/keys"},
	} {
		if m.Key.Scopes.Include(t.scope) {
			return t.path
		}
	}
	return ""
}

func (d *Pages) createKey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	n := account.NewKey{Name: q.Value("name"), Sites: id.From[site.ID](q.PostForm["sites"]), Service: q.Checked("service")}
	names := q.PostForm["scopes"]
	if q.Value("power") == "all" {
		names = []string{string(account.All)}
	}
	var err error
	if n.Scopes, err = account.ParseScopes(names); err != nil {
		return shell.Answer{}, err
	}
	if q.Value("reach") != "some" {
		n.Sites = nil
	} else if len(n.Sites) == 0 {
		return shell.Answer{}, shell.At("sites",
			&fault.Error{Kind: fault.Invalid, Message: "Choose at least one site", Details: "or choose all sites"})
	}
	for _, id := range n.Sites {
		if _, err := d.Sites.Get(ctx, q.Caller.Owner, id); err != nil {
			return shell.Answer{}, shell.At("sites", err)
		}
	}
	for text := range strings.FieldsFuncSeq(q.Value("addresses"), func(r rune) bool { return strings.ContainsRune(" ,\n\t", r) }) {
		p, err := account.ParseNet(text)
		if err != nil {
			return shell.Answer{}, shell.At("addresses", err)
		}
		n.Nets = append(n.Nets, p)
	}
	i := slices.IndexFunc(lives, func(l struct {
		Value, Name string
		Life        time.Duration
	},
	) bool {
		return l.Value == q.Value("expires")
	})
	if i < 0 {
		return shell.Answer{}, shell.At("expires", &fault.Error{Kind: fault.Invalid, Message: "Choose an expiration"})
	}
	if lives[i].Life > 0 {
		n.Expires = db.Now().Add(lives[i].Life)
	}
	if err := d.Prove(ctx, q); err != nil { // last, so that other errors are reported first
		return shell.Answer{}, err
	}
	var k account.Key
	var secret string
	err = d.ActOn(ctx, q, func(tx *db.Tx) (audit.Event, error) {
		k, secret, err = d.Accounts.CreateKeyTx(ctx, tx, q.Caller, n)
		return audit.Event{Action: "key.created", Subject: string(k.ID), Detail: k.Name + " (" + k.Scopes.String() + ")"}, err
	})
	return shell.Page("account_key_made", "API key created", madeKeyData{k, secret}), err
}

func (d *Pages) revokeKey(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	id := shell.PathID[account.KeyID](q, "key")
	err := d.Act(ctx, q, "key.revoked", func(tx *db.Tx) (string, error) {
		return string(id), d.Accounts.RevokeKeyTx(ctx, tx, q.Caller, id)
	})
	return shell.GoTo("/account/keys", "API key revoked"), err
}
