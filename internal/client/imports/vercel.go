package imports

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type vercelProject struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Build   string `json:"buildCommand"`
	Install string `json:"installCommand"`
	Output  string `json:"outputDirectory"`
	Root    string `json:"rootDirectory"`
	Node    string `json:"nodeVersion"` // "22.x"
	Link    struct {
		Type             string `json:"type"` // github, gitlab, bitbucket
		Org              string `json:"org"`
		Repo             string `json:"repo"`
		Owner            string `json:"owner"`
		Slug             string `json:"slug"`
		ProjectURL       string `json:"projectUrl"`
		ProductionBranch string `json:"productionBranch"`
	} `json:"link"`
	Crons struct {
		Definitions []struct{} `json:"definitions"`
	} `json:"crons"`
}

type vercelVar struct {
	ID        string `json:"id"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Type      string `json:"type"` // plain, encrypted, secret, sensitive, system
	Target    any    `json:"target"`
	Branch    string `json:"gitBranch"`
	Decrypted bool   `json:"decrypted"`
}

// vercel reads projects by Vercel's API (vercel.com/docs/rest-api).
func vercel(ctx context.Context, s *source) (out []*Site, err error) {
	query := url.Values{"limit": {"100"}}
	if s.account != "" {
		query.Set("teamId", s.account)
	}
	for page := 1; page <= maxPages; page++ {
		var list struct {
			Projects   []vercelProject `json:"projects"`
			Pagination struct {
				Next *int64 `json:"next"`
			} `json:"pagination"`
		}
		if _, err := s.get(ctx, "/v10/projects", query, &list); err != nil {
			return nil, err
		}
		for _, p := range list.Projects {
			if !s.wants(p.ID, p.Name) || len(out) >= maxSites {
				continue
			}
			x, err := vercelOne(ctx, s, p)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		if list.Pagination.Next == nil {
			break
		}
		query.Set("from", strconv.FormatInt(*list.Pagination.Next, 10))
	}
	return out, nil
}

func vercelOne(ctx context.Context, s *source, p vercelProject) (*Site, error) {
	x := &Site{ID: p.ID, Proposal: Proposal{
		Name: p.Name, Repository: p.repository(), Branch: p.Link.ProductionBranch,
		Build: Build{Command: p.Build, Install: p.Install, Output: p.Output, Root: p.Root, Node: strings.TrimSuffix(p.Node, ".x")},
	}}
	at := "/" + url.PathEscape(p.ID)
	query := url.Values{}
	if s.account != "" {
		query.Set("teamId", s.account)
	}
	var env struct {
		Envs []vercelVar `json:"envs"`
	}
	if _, err := s.part(ctx, x, "variables", "/v10/projects"+at+"/env", query, &env); err != nil {
		return nil, err
	}
	var sensitive []string
	for _, v := range env.Envs {
		switch v.Type {
		case "system": // set by Vercel
			continue
		case "sensitive":
			sensitive = append(sensitive, v.Key)
			continue
		case "encrypted", "secret":
			if !v.Decrypted { // the list contains encrypted values
				one := v
				ok, err := s.part(ctx, x, "variable "+v.Key, "/v1/projects"+at+"/env/"+url.PathEscape(v.ID), query, &one)
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
				v.Value = one.Value
			}
		}
		if w, ok := v.here(); ok {
			x.Proposal.Env = append(x.Proposal.Env, w)
		}
	}
	if len(sensitive) > 0 {
		x.leave("%s, whose values Vercel shows to nobody: set them with slipway env set: %s",
			plural(len(sensitive), "sensitive variable"), listed(sensitive))
	}
	var domains struct {
		Domains []struct {
			Name     string `json:"name"`
			Redirect string `json:"redirect"`
			Branch   string `json:"gitBranch"`
		} `json:"domains"`
	}
	if _, err := s.part(ctx, x, "domains", "/v9/projects"+at+"/domains", query, &domains); err != nil {
		return nil, err
	}
	var branches []string
	for _, d := range domains.Domains {
		switch {
		case strings.HasSuffix(d.Name, ".vercel.app"):
		case d.Branch != "":
			branches = append(branches, d.Name+" for "+d.Branch)
		default:
			x.Domains = append(x.Domains, d.Name)
			if d.Redirect != "" {
				x.leave("the redirect of %s to %s: write it in _redirects or choose the main domain in the site's domains", d.Name, d.Redirect)
			}
		}
	}
	x.missing(map[string]bool{
		"domains of branches (" + listed(branches) + ")":                                len(branches) > 0,
		plural(len(p.Crons.Definitions), "cron job") + ", which slipway.toml describes": len(p.Crons.Definitions) > 0,
	})
	return x, nil
}

func (p vercelProject) repository() string {
	switch p.Link.Type {
	case "github":
		if p.Link.Org != "" && p.Link.Repo != "" {
			return "github.com/" + p.Link.Org + "/" + p.Link.Repo
		}
	case "gitlab":
		return repository(p.Link.ProjectURL)
	case "bitbucket":
		if p.Link.Owner != "" && p.Link.Slug != "" {
			return "bitbucket.org/" + p.Link.Owner + "/" + p.Link.Slug
		}
	}
	return ""
}

// here converts a variable. ok is false for variables of development only.
func (v vercelVar) here() (w Var, ok bool) {
	var targets []string
	switch t := v.Target.(type) { // the schema allows a string and a list
	case string:
		targets = []string{t}
	case []any:
		for _, one := range t {
			if text, is := one.(string); is {
				targets = append(targets, text)
			}
		}
	}
	w = Var{Key: v.Key, Value: v.Value, Branch: v.Branch}
	production, preview := slices.Contains(targets, "production"), slices.Contains(targets, "preview")
	switch {
	case v.Branch != "", production && preview:
	case production:
		w.Target = []string{"production"}
	case preview:
		w.Target = []string{"preview"}
	default:
		return w, false
	}
	return w, true
}
