package account

import (
	"slices"
	"strings"

	"slipway/internal/platform/fault"
)

// Scope names something a key may do. ":write" includes ":read", and All includes all.
type Scope string

// The scopes there are.
const (
	All              Scope = "*"
	SitesRead        Scope = "sites:read"
	SitesWrite       Scope = "sites:write"
	DeploymentsRead  Scope = "deployments:read"
	DeploymentsWrite Scope = "deployments:write"
	DomainsRead      Scope = "domains:read"
	DomainsWrite     Scope = "domains:write"
	WebhooksRead     Scope = "webhooks:read"
	WebhooksWrite    Scope = "webhooks:write"
	EnvRead          Scope = "env:read"
	EnvWrite         Scope = "env:write"
	BackupsRead      Scope = "backups:read"
	BackupsWrite     Scope = "backups:write"
	KeysWrite        Scope = "keys:write"
	AccountRead      Scope = "account:read"
	PreviewsWrite    Scope = "previews:write" // a part of deployments:write
	TeamRead         Scope = "team:read"
	TeamWrite        Scope = "team:write"
	AppsWrite        Scope = "apps:write"
	AuditRead        Scope = "audit:read"
	BillingRead      Scope = "billing:read"
	BillingWrite     Scope = "billing:write"
)

// AllScopes is every scope, in the order the reference lists them.
var AllScopes = Scopes{
	SitesRead, SitesWrite, DeploymentsRead, DeploymentsWrite, PreviewsWrite, DomainsRead, DomainsWrite,
	WebhooksRead, WebhooksWrite, EnvRead, EnvWrite, BackupsRead, BackupsWrite, KeysWrite, AccountRead,
	TeamRead, TeamWrite, AppsWrite, AuditRead, BillingRead, BillingWrite, All,
}

// Description is the scope in words, as a person is asked to allow it.
func (s Scope) Description() string { return descriptions[s] }

var descriptions = map[Scope]string{
	SitesRead:        "View your sites and their settings",
	SitesWrite:       "Create, change, stop and delete sites",
	DeploymentsRead:  "View deployments and logs",
	DeploymentsWrite: "Deploy, cancel and roll back",
	DomainsRead:      "View domains",
	DomainsWrite:     "Add, change and remove domains",
	WebhooksRead:     "View webhooks and deliveries",
	WebhooksWrite:    "Create, change and delete webhooks",
	EnvRead:          "Read environment variables",
	EnvWrite:         "Read, set and delete environment variables",
	BackupsRead:      "View backups, and download backups and databases",
	BackupsWrite:     "Create and restore backups",
	KeysWrite:        "Create and revoke API keys",
	AccountRead:      "View your email address, limits and usage",
	AppsWrite:        "Register and change OAuth apps",
	PreviewsWrite:    "Deploy previews",
	TeamRead:         "View the team's members",
	TeamWrite:        "Invite, change and remove members",
	AuditRead:        "Read the audit log",
	BillingRead:      "View plans and invoices",
	BillingWrite:     "Change plans and payments",
	All:              "Do everything that you can do",
}

// Scopes lists what a key may do.
type Scopes []Scope

// ParseScopes checks names and drops repetitions; an unknown one is an Invalid fault.
func ParseScopes(names []string) (Scopes, error) {
	var out Scopes
	for _, n := range names {
		s := Scope(n)
		if !slices.Contains(AllScopes, s) {
			return nil, fault.New(fault.Invalid, "unknown_scope", "Unknown scope", "scopes are "+AllScopes.String()).Got(n)
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fault.New(fault.Invalid, "scopes_required", "A key needs at least one scope",
			"scopes are "+AllScopes.String())
	}
	return out, nil
}

// Include reports whether these scopes allow what want names.
func (s Scopes) Include(want Scope) bool {
	for _, have := range s {
		if have == All || have == want || have == DeploymentsWrite && want == PreviewsWrite {
			return true
		}
		if noun, ok := strings.CutSuffix(string(want), ":read"); ok && string(have) == noun+":write" {
			return true
		}
	}
	return false
}

// String is the names separated by spaces, as OAuth writes them (RFC 6749 §3.3).
func (s Scopes) String() string {
	names := make([]string, len(s))
	for i, v := range s {
		names[i] = string(v)
	}
	return strings.Join(names, " ")
}

func splitScopes(text string) Scopes {
	var out Scopes
	for n := range strings.FieldsSeq(text) {
		out = append(out, Scope(n))
	}
	return out
}
