package imports

import (
	"context"
	"net/url"
	"strings"
)

type renderService struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Type    string `json:"type"` // static_site, web_service, private_service, background_worker, cron_job
	OwnerID string `json:"ownerId"`
	Repo    string `json:"repo"`
	Branch  string `json:"branch"`
	Root    string `json:"rootDir"`
	Details struct {
		Build   string `json:"buildCommand"` // for static sites
		Publish string `json:"publishPath"`
		Runtime string `json:"runtime"`
		Env     string `json:"env"` // former name of runtime
		Health  string `json:"healthCheckPath"`
		Disk    *struct {
			Name string `json:"name"`
		} `json:"disk"`
		Specific struct {
			Build string `json:"buildCommand"`
			Start string `json:"startCommand"`
		} `json:"envSpecificDetails"`
	} `json:"serviceDetails"`
}

// render reads services by Render's API (api-docs.render.com).
func render(ctx context.Context, s *source) (out []*Site, err error) {
	query := url.Values{"limit": {"100"}}
	if s.account != "" {
		query.Set("ownerId", s.account)
	}
	for page := 1; page <= maxPages; page++ {
		var list []struct {
			Cursor  string        `json:"cursor"`
			Service renderService `json:"service"`
		}
		if _, err := s.get(ctx, "/services", query, &list); err != nil {
			return nil, err
		}
		for _, e := range list {
			if !s.wants(e.Service.ID, e.Service.Name) || len(out) >= maxSites {
				continue
			}
			switch e.Service.Type {
			case "static_site", "web_service":
			default:
				s.partial = append(s.partial, e.Service.Name+" is a "+strings.ReplaceAll(e.Service.Type, "_", " ")+
					": Slipway runs these beside a site, see [processes] and [[cron]] of slipway.toml")
				continue
			}
			x, err := renderOne(ctx, s, e.Service)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
		if len(list) < 100 {
			break
		}
		query.Set("cursor", list[len(list)-1].Cursor)
	}
	return out, nil
}

func renderOne(ctx context.Context, s *source, r renderService) (*Site, error) {
	d := r.Details
	x := &Site{ID: r.ID, Proposal: Proposal{
		Name: r.Name, Repository: repository(r.Repo), Branch: r.Branch,
		Build: Build{Root: strings.Trim(r.Root, "/")},
	}}
	p := &x.Proposal
	if r.Type == "static_site" {
		p.Build.Command, p.Build.Output = d.Build, strings.Trim(strings.TrimPrefix(d.Publish, "./"), "/")
	} else {
		p.Build.Command, p.Run.Command = d.Specific.Build, d.Specific.Start
		if d.Health != "" {
			p.Run.HealthCheck = &Check{d.Health}
		}
	}
	at := "/services/" + url.PathEscape(r.ID)
	query := url.Values{"limit": {"100"}}
	for page := 1; page <= maxPages; page++ {
		var list []struct {
			Cursor string `json:"cursor"`
			Var    Var    `json:"envVar"`
		}
		ok, err := s.part(ctx, x, "variables", at+"/env-vars", query, &list)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if e.Var.Key == "NODE_VERSION" {
				p.Build.Node = e.Var.Value
				continue
			}
			p.Env = append(p.Env, Var{Key: e.Var.Key, Value: e.Var.Value})
		}
		if !ok || len(list) < 100 {
			break
		}
		query.Set("cursor", list[len(list)-1].Cursor)
	}
	var domains []struct {
		Domain struct {
			Name string `json:"name"`
		} `json:"customDomain"`
	}
	if _, err := s.part(ctx, x, "domains", at+"/custom-domains", url.Values{"limit": {"100"}}, &domains); err != nil {
		return nil, err
	}
	for _, e := range domains {
		x.Domains = append(x.Domains, e.Domain.Name)
	}
	var routes, headers, files []struct{}
	if r.Type == "static_site" {
		if _, err := s.part(ctx, x, "routes", at+"/routes", url.Values{"limit": {"100"}}, &routes); err != nil {
			return nil, err
		}
		if _, err := s.part(ctx, x, "headers", at+"/headers", url.Values{"limit": {"100"}}, &headers); err != nil {
			return nil, err
		}
	}
	if _, err := s.part(ctx, x, "secret files", at+"/secret-files", url.Values{"limit": {"100"}}, &files); err != nil {
		return nil, err
	}
	runtime := d.Runtime
	if runtime == "" {
		runtime = d.Env
	}
	x.missing(map[string]bool{
		plural(len(routes), "route") + ", which belong into _redirects":    len(routes) > 0,
		plural(len(headers), "header") + ", which belong into _headers":    len(headers) > 0,
		plural(len(files), "secret file"):                                  len(files) > 0,
		"the files on its disk":                                            d.Disk != nil,
		"its runtime " + runtime + ": Slipway runs Node.js, PHP and files": r.Type == "web_service" && runtime != "" && runtime != "node",
	})
	return x, nil
}
