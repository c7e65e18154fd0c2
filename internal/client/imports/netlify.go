package imports

import (
	"context"
	"net/url"
	"strconv"
	"strings"
)

type netlifySite struct {
	ID            string   `json:"id"`
	Name          string   `json:"name"`
	AccountID     string   `json:"account_id"`
	AccountSlug   string   `json:"account_slug"`
	CustomDomain  string   `json:"custom_domain"`
	DomainAliases []string `json:"domain_aliases"`
	Settings      struct {
		URL       string `json:"repo_url"`
		Branch    string `json:"repo_branch"`
		Command   string `json:"cmd"`
		Dir       string `json:"dir"`
		Base      string `json:"base"`
		Functions string `json:"functions_dir"`
	} `json:"build_settings"`
	Identity string `json:"identity_instance_id"`
	Split    any    `json:"split_test"`
}

type netlifyVar struct {
	Key    string   `json:"key"`
	Scopes []string `json:"scopes"`
	Secret bool     `json:"is_secret"`
	Values []struct {
		Value   string `json:"value"`
		Context string `json:"context"`
		Branch  string `json:"context_parameter"`
	} `json:"values"`
}

// netlify reads sites by Netlify's API (open-api.netlify.com).
func netlify(ctx context.Context, s *source) (out []*Site, err error) {
	const perPage = 100
	for page := 1; page <= maxPages; page++ {
		var list []netlifySite
		query := url.Values{"filter": {"all"}, "per_page": {strconv.Itoa(perPage)}, "page": {strconv.Itoa(page)}}
		if _, err := s.get(ctx, "/sites", query, &list); err != nil {
			return nil, err
		}
		for _, n := range list {
			if s.account != "" && s.account != n.AccountID && s.account != n.AccountSlug || !s.wants(n.ID, n.Name) || len(out) >= maxSites {
				continue
			}
			x, err := netlifyOne(ctx, s, n)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		if len(list) < perPage {
			break
		}
	}
	return out, nil
}

func netlifyOne(ctx context.Context, s *source, n netlifySite) (*Site, error) {
	b := n.Settings
	x := &Site{ID: n.ID, Proposal: Proposal{
		Name: n.Name, Repository: repository(b.URL), Branch: b.Branch,
		Build: Build{Command: b.Command, Root: strings.Trim(b.Base, "/"), Output: strings.Trim(b.Dir, "/")},
	}}
	p := &x.Proposal
	if rest, ok := strings.CutPrefix(p.Build.Output, p.Build.Root+"/"); ok && p.Build.Root != "" { // Netlify stores it with the base folder
		p.Build.Output = rest
	}
	for _, d := range append([]string{n.CustomDomain}, n.DomainAliases...) {
		if d != "" {
			x.Domains = append(x.Domains, d)
		}
	}
	var vars []netlifyVar
	ok, err := s.part(ctx, x, "variables", "/accounts/"+url.PathEscape(n.AccountID)+"/env", url.Values{"site_id": {n.ID}}, &vars)
	if err != nil {
		return nil, err
	}
	if ok {
		x.netlifyVars(vars)
	}
	var forms, snippets []struct{}
	if _, err := s.part(ctx, x, "forms", "/sites/"+url.PathEscape(n.ID)+"/forms", nil, &forms); err != nil {
		return nil, err
	}
	if _, err := s.part(ctx, x, "snippets", "/sites/"+url.PathEscape(n.ID)+"/snippets", nil, &snippets); err != nil {
		return nil, err
	}
	x.missing(map[string]bool{
		"functions in " + b.Functions:             b.Functions != "",
		plural(len(forms), "form"):                len(forms) > 0,
		plural(len(snippets), "injected snippet"): len(snippets) > 0,
		"Identity":    n.Identity != "",
		"split tests": n.Split != nil,
	})
	return x, nil
}

// netlifyVars imports the values of contexts that Slipway has: production, previews and branches.
func (x *Site) netlifyVars(vars []netlifyVar) {
	var secret []string
	for _, v := range vars {
		if v.Secret {
			secret = append(secret, v.Key)
			continue
		}
		of := map[string][]string{}
		for _, one := range v.Values {
			of[one.Context] = append(of[one.Context], one.Value)
		}
		for _, one := range v.Values {
			w := Var{Key: v.Key, Value: one.Value}
			switch one.Context {
			case "all":
				// a context's own value takes precedence
				if of["production"] != nil && of["deploy-preview"] != nil {
					continue
				}
				if of["production"] != nil {
					w.Target = []string{"preview"}
				} else if of["deploy-preview"] != nil {
					w.Target = []string{"production"}
				}
			case "production":
				w.Target = []string{"production"}
			case "deploy-preview":
				w.Target = []string{"preview"}
			case "branch":
				w.Branch = one.Branch
			default: // dev is the user's machine; branch-deploy has no counterpart
				if one.Context != "dev" && of["deploy-preview"] == nil && of["all"] == nil {
					w.Target = []string{"preview"}
					break
				}
				continue
			}
			if v.Key == "NODE_VERSION" && w.Branch == "" {
				x.Proposal.Build.Node = one.Value
				continue
			}
			x.Proposal.Env = append(x.Proposal.Env, w)
		}
	}
	if len(secret) > 0 {
		x.leave("%s, whose values Netlify shows to nobody: set them with slipway env set: %s",
			plural(len(secret), "secret variable"), listed(secret))
	}
}
