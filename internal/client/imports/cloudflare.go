package imports

import (
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type cloudflareProject struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Domains []string `json:"domains"`
	Source  struct {
		Type   string `json:"type"` // github, gitlab
		Config struct {
			Owner  string `json:"owner"`
			Repo   string `json:"repo_name"`
			Branch string `json:"production_branch"`
		} `json:"config"`
	} `json:"source"`
	Branch string `json:"production_branch"`
	Build  struct {
		Command string `json:"build_command"`
		Output  string `json:"destination_dir"`
		Root    string `json:"root_dir"`
	} `json:"build_config"`
	Configs struct {
		Production map[string]json.RawMessage `json:"production"`
		Preview    map[string]json.RawMessage `json:"preview"`
	} `json:"deployment_configs"`
	Functions bool `json:"uses_functions"`
}

// cloudflare reads Pages projects by Cloudflare's API (developers.cloudflare.com/api).
func cloudflare(ctx context.Context, s *source) (out []*Site, err error) {
	accounts := []string{s.account}
	if s.account == "" {
		if accounts, err = cloudflareAccounts(ctx, s); err != nil {
			return nil, err
		}
	}
	for _, account := range accounts {
		for page, pages := 1, 1; page <= min(pages, maxPages); page++ {
			var list struct {
				Result []cloudflareProject `json:"result"`
				Info   struct {
					Pages int `json:"total_pages"`
				} `json:"result_info"`
			}
			if _, err := s.get(ctx, "/accounts/"+url.PathEscape(account)+"/pages/projects", url.Values{"page": {strconv.Itoa(page)}},
				&list); err != nil {
				return nil, err
			}
			pages = list.Info.Pages
			for _, p := range list.Result {
				if s.wants(p.ID, p.Name) && len(out) < maxSites {
					out = append(out, p.site())
				}
			}
		}
	}
	return out, nil
}

func cloudflareAccounts(ctx context.Context, s *source) (ids []string, err error) {
	var list struct {
		Result []struct {
			ID string `json:"id"`
		} `json:"result"`
	}
	if _, err := s.get(ctx, "/accounts", url.Values{"per_page": {"50"}}, &list); err != nil {
		return nil, err
	}
	for _, a := range list.Result {
		ids = append(ids, a.ID)
	}
	return ids, nil
}

func (c cloudflareProject) site() *Site {
	x := &Site{ID: c.ID, Proposal: Proposal{
		Name: c.Name, Branch: c.Source.Config.Branch,
		Build: Build{
			Command: c.Build.Command, Output: strings.Trim(c.Build.Output, "/"), Root: strings.Trim(c.Build.Root, "/"),
		},
	}}
	if host := map[string]string{"github": "github.com", "gitlab": "gitlab.com"}[c.Source.Type]; host != "" {
		x.Proposal.Repository = repository(host + "/" + c.Source.Config.Owner + "/" + c.Source.Config.Repo)
	}
	for _, d := range c.Domains {
		if !strings.HasSuffix(d, ".pages.dev") {
			x.Domains = append(x.Domains, d)
		}
	}
	secret, bindings := map[string]bool{}, map[string]bool{}
	for target, config := range map[string]map[string]json.RawMessage{"production": c.Configs.Production, "preview": c.Configs.Preview} {
		var vars map[string]*struct {
			Type  string `json:"type"` // plain_text, secret_text
			Value string `json:"value"`
		}
		if json.Unmarshal(config["env_vars"], &vars) != nil {
			vars = nil
		}
		for _, name := range slices.Sorted(maps.Keys(vars)) {
			switch v := vars[name]; {
			case v == nil:
			case v.Type == "secret_text":
				secret[name] = true
			case name == "NODE_VERSION" && target == "production":
				x.Proposal.Build.Node = v.Value
			case name == "NODE_VERSION":
			default:
				x.Proposal.Env = append(x.Proposal.Env, Var{Key: name, Value: v.Value, Target: []string{target}})
			}
		}
		for name, words := range map[string]string{
			"kv_namespaces": "KV namespaces", "d1_databases": "D1 databases", "r2_buckets": "R2 buckets",
			"durable_object_namespaces": "Durable Objects",
			"queue_producers":           "queues", "services": "service bindings", "ai_bindings": "AI bindings",
		} {
			var some map[string]json.RawMessage
			if json.Unmarshal(config[name], &some) == nil && len(some) > 0 {
				bindings[words] = true
			}
		}
	}
	slices.SortFunc(x.Proposal.Env, func(a, b Var) int { return strings.Compare(a.Key+" "+a.Target[0], b.Key+" "+b.Target[0]) })
	if len(secret) > 0 {
		x.leave("%s, whose values Cloudflare shows to nobody: set them with slipway env set: %s",
			plural(len(secret), "secret variable"), listed(sortedKeys(secret)))
	}
	bindings["Pages Functions"] = c.Functions
	x.missing(bindings)
	return x
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
