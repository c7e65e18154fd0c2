package account_test

import (
	"strings"
	"testing"

	"slipway/internal/account"
)

func TestParseLimits(t *testing.T) {
	t.Parallel()
	got, err := account.ParseLimits(`
		[defaults]
		sites = 50
		deployments.pending = 20
		[users."Ada@Example.com"]
		sites = "unlimited"
		"deployments.pending" = 0`)
	ada := got.Users["ada@example.com"]
	if err != nil || got.Defaults[account.LimitSites] != 50 || got.Defaults[account.LimitDeployments] != 20 || ada[account.LimitSites] != account.Unlimited || ada[account.LimitDeployments] != 0 || len(ada) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"[defaults]\nsitez = 1":             `unknown limit "sitez"; limits are databases, deployments.pending, domains, env,`,
		"[defaults]\nsites = -1":            "whole number",
		"[defaults]\nsites = 1.5":           "whole number",
		"[defaults]\nsites = \"many\"":      "whole number",
		"sites = 1":                         `unknown entry "sites"`,
		"[users.ada]\nsites = 1":            "quotation marks",
		"[users.\"a@b.test\"]\nstorage = 1": `users.a@b.test: unknown limit "storage"`,
		"[defaults]\nsites.x = 1":           `unknown limit "sites.x"`,
		"[defaults":                         "toml",
	} {
		if _, err := account.ParseLimits(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
