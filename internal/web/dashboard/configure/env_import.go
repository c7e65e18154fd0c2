package configure

import (
	"context"
	"slices"

	"slipway/internal/platform/dotenv"
	"slipway/internal/platform/text"
	"slipway/internal/tenant/site"
	"slipway/internal/web/dashboard/shell"
	"slipway/internal/web/dashboard/sites"
)

// varChange is the effect of an import on one variable.
type varChange struct {
	Key, Kind      string // new, changed, same
	Before, After  string // empty if secret
	Secret, Hidden bool   // secret after, and before the import
}

type importData struct {
	sites.SiteHead
	Text    string
	Secrets string      // which variables become secret: names, all or none
	Changes []varChange // nil before the preview
	Writes  int         // number of variables that change
}

// secretsOf reads which imported variables become secret.
func secretsOf(q *shell.Request) string {
	if v := q.Value("secrets"); v == "all" || v == "none" {
		return v
	}
	return "names"
}

func (d *Pages) importPage(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	head.Sub = "Import variables"
	return shell.Page("site_import", "Import variables", importData{SiteHead: head, Text: q.Value("text"), Secrets: secretsOf(q)}), err
}

// importEnv previews the import of a .env text, and performs it if the form has "apply".
func (d *Pages) importEnv(ctx context.Context, q *shell.Request) (shell.Answer, error) {
	head, err := d.Head(ctx, q, "env")
	if err != nil {
		return shell.Answer{}, err
	}
	pairs, err := dotenv.Parse(q.Value("text"))
	if err != nil {
		return shell.Answer{}, shell.At("text", err)
	}
	have, err := d.Sites.Env(ctx, q.Caller.Owner, head.Site.ID)
	if err != nil {
		return shell.Answer{}, err
	}
	data := importData{SiteHead: head, Text: q.Value("text"), Secrets: secretsOf(q), Changes: []varChange{}}
	var write []site.NewVar
	for _, p := range pairs {
		secret := data.Secrets == "all" || data.Secrets == "names" && dotenv.Secret(p.Key, p.Value)
		c := varChange{Key: p.Key, Kind: "new", After: p.Value, Secret: secret}
		n := site.NewVar{Key: p.Key, Value: p.Value, Secret: secret}
		if i := slices.IndexFunc(have, func(v site.Var) bool { return v.Key == p.Key && v.Branch == "" }); i >= 0 {
			v := have[i]
			c.Kind, c.Before, c.Hidden = "changed", v.Value, v.Secret
			c.Secret = secret || v.Secret // secrets stay secret
			n.Secret, n.Target = c.Secret, v.Target
			if !v.Secret && v.Value == p.Value && !c.Secret {
				c.Kind = "same"
			}
		}
		if c.Secret {
			c.After = ""
		}
		if c.Kind != "same" {
			write = append(write, n)
		}
		data.Changes = append(data.Changes, c)
	}
	data.Writes = len(write)
	if q.Value("step") != "apply" {
		data.Sub = "Import variables"
		return shell.Page("site_import", "Import variables", data), nil
	}
	if len(write) == 0 {
		return shell.GoTo(head.Base()+"/env", "No changes to import"), nil
	}
	err = d.setVars(ctx, q, head.Site.ID, write)
	return shell.GoTo(head.Base()+"/env", "Imported "+text.Count(len(write), "variable")), shell.At("text", err)
}
