package account

import (
	"slices"
	"testing"

	"slipway/internal/platform/id"
)

// Narrowing a caller never adds rights.
func TestNarrowed(t *testing.T) {
	t.Parallel()
	all := Caller{User: "usr_a", Scopes: Scopes{All}, granted: Scopes{All}, Admin: true}
	some := Caller{User: "usr_a", Scopes: Scopes{SitesWrite, EnvRead}, Sites: []id.Site{"site_a", "site_b"}}
	for name, tt := range map[string]struct {
		c       Caller
		n       Narrowing
		sites   []id.Site
		has     Scopes
		lacks   Scopes
		refused bool
	}{
		"nothing": {some, Narrowing{}, some.Sites, Scopes{SitesWrite}, Scopes{EnvWrite}, false},
		"read only": {
			some, Narrowing{ReadOnly: true}, some.Sites, Scopes{SitesRead, EnvRead}, Scopes{SitesWrite, DeploymentsRead}, false,
		},
		"everything, to read": {
			all, Narrowing{ReadOnly: true}, nil, Scopes{SitesRead, BackupsRead}, Scopes{SitesWrite, All, PreviewsWrite}, false,
		},
		"a site of all":  {all, Narrowing{Sites: []id.Site{"site_x"}}, []id.Site{"site_x"}, Scopes{All}, nil, false},
		"a site of some": {some, Narrowing{Sites: []id.Site{"site_b", "site_x"}}, []id.Site{"site_b"}, Scopes{SitesWrite}, nil, false},
		"another site":   {some, Narrowing{Sites: []id.Site{"site_x"}}, nil, nil, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := tt.c.Narrowed(tt.n)
			if (err != nil) != tt.refused {
				t.Fatalf("refused: %v", err)
			}
			if tt.refused {
				return
			}
			if !slices.Equal(c.Sites, tt.sites) {
				t.Errorf("sites are %v, want %v", c.Sites, tt.sites)
			}
			for _, s := range tt.has {
				if err := c.Require(s); err != nil {
					t.Errorf("%s: %v", s, err)
				}
			}
			for _, s := range tt.lacks {
				if c.Require(s) == nil || c.granted.Include(s) {
					t.Errorf("it still has %s", s)
				}
			}
			if tt.n.ReadOnly && c.Admin {
				t.Error("an administrator is left")
			}
		})
	}
}
