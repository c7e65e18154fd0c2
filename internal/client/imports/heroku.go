package imports

import (
	"context"
	"net/url"
	"slices"
	"strings"
)

type herokuApp struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Team *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"team"`
}

// heroku reads apps with Heroku's Platform API (devcenter.heroku.com/articles/platform-api-reference), which doesn't
// tell an app's repository.
func heroku(ctx context.Context, s *source) (out []*Site, err error) {
	s.header.Set("Accept", "application/vnd.heroku+json; version=3")
	next := "id ..; max=1000"
	for page := 1; page <= maxPages && next != ""; page++ {
		var list []herokuApp
		s.header.Set("Range", next)
		header, err := s.get(ctx, "/apps", nil, &list)
		s.header.Del("Range")
		if err != nil {
			return nil, err
		}
		next = header.Get("Next-Range")
		for _, a := range list {
			if s.account != "" && (a.Team == nil || a.Team.ID != s.account && a.Team.Name != s.account) || !s.wants(a.ID, a.Name) ||
				len(out) >= maxSites {
				continue
			}
			x, err := herokuOne(ctx, s, a)
			if err != nil {
				return nil, err
			}
			out = append(out, x)
		}
	}
	return out, nil
}

func herokuOne(ctx context.Context, s *source, a herokuApp) (*Site, error) {
	x := &Site{ID: a.ID, Proposal: Proposal{Name: a.Name}}
	at := "/apps/" + url.PathEscape(a.ID)
	var config map[string]string
	if _, err := s.part(ctx, x, "variables", at+"/config-vars", nil, &config); err != nil {
		return nil, err
	}
	var addons []struct {
		Service struct {
			Name string `json:"name"`
		} `json:"addon_service"`
		Vars []string `json:"config_vars"`
	}
	if _, err := s.part(ctx, x, "add-ons", at+"/addons", nil, &addons); err != nil {
		return nil, err
	}
	owned := map[string]string{} // variables set by add-ons
	var services []string
	for _, addon := range addons {
		services = append(services, addon.Service.Name)
		for _, v := range addon.Vars {
			owned[v] = addon.Service.Name
		}
	}
	for _, name := range sortedKeys(config) {
		if service := owned[name]; service != "" {
			x.leave("%s, which belongs to the add-on %s", name, service)
			continue
		}
		x.Proposal.Env = append(x.Proposal.Env, Var{Key: name, Value: config[name]})
	}
	var domains []struct {
		Name string `json:"hostname"`
		Kind string `json:"kind"`
	}
	if _, err := s.part(ctx, x, "domains", at+"/domains", nil, &domains); err != nil {
		return nil, err
	}
	for _, d := range domains {
		if d.Kind == "custom" {
			x.Domains = append(x.Domains, d.Name)
		}
	}
	var formation []struct {
		Type     string `json:"type"`
		Command  string `json:"command"`
		Quantity int    `json:"quantity"`
	}
	if _, err := s.part(ctx, x, "processes", at+"/formation", nil, &formation); err != nil {
		return nil, err
	}
	for _, f := range formation {
		if f.Type != "web" && f.Quantity > 0 {
			x.carry("process %s, which Slipway reads from the Procfile", f.Type)
		}
	}
	var packs []struct {
		Pack struct {
			Name string `json:"name"`
			URL  string `json:"url"`
		} `json:"buildpack"`
	}
	if _, err := s.part(ctx, x, "buildpacks", at+"/buildpack-installations", nil, &packs); err != nil {
		return nil, err
	}
	var other []string
	for _, b := range packs {
		if name := b.Pack.Name; !slices.ContainsFunc([]string{"nodejs", "php", "static"},
			func(known string) bool { return strings.Contains(name, known) }) {
			other = append(other, name)
		}
	}
	slices.Sort(services)
	x.missing(map[string]bool{
		plural(len(services), "add-on") + ": " + listed(services):                   len(services) > 0,
		"its buildpacks " + listed(other) + ": Slipway runs Node.js, PHP and files": len(other) > 0,
	})
	return x, nil
}
