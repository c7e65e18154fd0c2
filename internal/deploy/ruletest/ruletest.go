// Package ruletest owns reports on a site's redirect and header rules: which rules a release has, and how it would
// answer a request, without sending it.
//
// Package release compiles and applies the rules.
package ruletest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"slipway/internal/build/release"
	"slipway/internal/build/rules"
	"slipway/internal/deploy/deploy"
	"slipway/internal/deploy/deployment"
	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/tenant/account"
	"slipway/internal/tenant/site"
)

// Config holds what Rules needs.
type Config struct {
	DB          *db.DB
	Sites       *site.Sites
	Deployments *deploy.Deployments
	Releases    *release.Releases

	Countries bool // whether visitors' countries are known, so that rules may use them
}

// Rules reports on the rules of sites.
type Rules struct{ c Config }

// New returns Rules.
func New(c Config) *Rules { return &Rules{c} }

// Trial is a request to test against a release's rules.
type Trial struct {
	Path       string            // with its query; a full URL works too
	Host       string            // Optional: empty means the site's own.
	Language   string            // Accept-Language. Optional.
	Country    string            // ISO 3166 code of the visitor's country. Optional.
	Cookie     string            // Optional.
	Deployment deployment.ID     // Optional: empty means the live one.
	Files      map[string]string // rule files that replace the published ones, by name. Optional.
}

// Answer is the answer to a Trial, and why.
type Answer struct {
	Action      string // file, rewrite, redirect, proxy, error or password
	Status      int
	Rule        string // the redirect rule that decided, such as "_redirects:3"; "" for none
	Location    string // of a redirect or proxied request
	File        string // the file that is served
	HeaderRules []string
	Set         []rules.Field
	Unset       []string
	Vary        []string
	ByCountry   bool            // whether the answer depends on the visitor's country
	Problems    []rules.Problem // in the given files
	Deployment  deployment.ID
}

const (
	maxTestPath = 4096
	maxFile     = 64 << 10 // bytes of a tested rule file
)

// Try returns how a release of the owner's site answers a request.
func (r *Rules) Try(ctx context.Context, owner account.OwnerID, id site.ID, t Trial) (Answer, error) {
	q, err := r.request(&t)
	if err != nil {
		return Answer{}, err
	}
	s, tree, dep, err := r.tree(ctx, owner, id, t.Deployment)
	if err != nil {
		return Answer{}, err
	}
	if q.Host == "" {
		q.Host = strings.TrimPrefix(r.c.Sites.URL(s.Slug), "https://")
		q.Host, _, _ = strings.Cut(q.Host, ":")
	}
	out := Answer{Deployment: dep}
	if len(t.Files) > 0 {
		tree, out.Problems = tree.WithRules(t.Files)
	}
	settings, err := r.c.Sites.ServingOf(ctx, r.c.DB, id)
	if err != nil {
		return Answer{}, err
	}
	a := tree.Served(settings.SinglePage, settings.TrailingSlash).Resolve(q)
	out.Status, out.Rule, out.Location, out.HeaderRules, out.Set, out.Unset, out.Vary, out.ByCountry = a.Status, a.Rule,
		a.Location, a.Headers, a.Set, a.Unset, a.Vary, a.ByCountry
	switch a.Kind {
	case release.Found:
		out.Action, out.File = "file", a.File.Path
		if a.Rule != "" {
			out.Action = "rewrite"
		}
	case release.Missing, release.Nothing:
		out.Action, out.File = "error", a.File.Path
	case release.Redirected:
		out.Action = "redirect"
	case release.Proxied:
		out.Action = "proxy"
	}
	if a.Auth != nil {
		out.Action, out.Status = "password", 401
	}
	return out, nil
}

func (r *Rules) request(t *Trial) (rules.Request, error) {
	for _, scheme := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(t.Path, scheme); ok {
			host, path, _ := strings.Cut(rest, "/")
			if t.Host == "" {
				t.Host, _, _ = strings.Cut(host, ":")
			}
			t.Path = "/" + path
		}
	}
	if !strings.HasPrefix(t.Path, "/") || len(t.Path) > maxTestPath {
		return rules.Request{}, fault.New(fault.Invalid, "invalid_path", "Invalid path",
			fmt.Sprintf("path must begin with / and have at most %d bytes", maxTestPath)).Got(t.Path[:min(len(t.Path), 200)])
	}
	if t.Country != "" && !r.c.Countries {
		return rules.Request{}, fault.New(fault.Invalid, "no_countries", "Countries are not available on this server",
			"no country database is configured, so rules with Country= never apply; leave country out").Got(t.Country)
	}
	for name, text := range t.Files {
		if !slices.Contains(rules.Files(), name) {
			return rules.Request{}, fault.New(fault.Invalid, "invalid_rules", "Invalid rules",
				"rules must be named "+strings.Join(rules.Files(), ", ")).Got(name)
		}
		if len(text) > maxFile {
			return rules.Request{}, fault.New(fault.Invalid, "invalid_rules", "Invalid rules",
				fmt.Sprintf("%s may have at most %d bytes here", name, maxFile))
		}
	}
	path, _, _ := strings.Cut(t.Path, "#")
	path, query, _ := strings.Cut(path, "?")
	return rules.Request{
		Path:     path,
		Query:    query,
		Host:     strings.ToLower(t.Host),
		Language: t.Language,
		Cookie:   t.Cookie,
		Country:  strings.ToUpper(t.Country),
	}, nil
}

// Live returns the rules of the owner's live site.
func (r *Rules) Live(ctx context.Context, owner account.OwnerID, id site.ID) (Published, error) {
	_, tree, _, err := r.tree(ctx, owner, id, "")
	if err != nil {
		return Published{}, err
	}
	return Published{tree.Rules(), tree.Fallback()}, nil
}

// Published holds the rules of a release.
type Published struct {
	rules.Rules
	Fallback string // page for paths without a file; empty if none
}

// tree returns the live release, or a deployment's.
func (r *Rules) tree(
	ctx context.Context,
	owner account.OwnerID,
	id site.ID,
	dep deployment.ID,
) (site.Site, *release.Tree, deployment.ID, error) {
	s, err := r.c.Sites.Get(ctx, owner, id)
	if err != nil {
		return s, nil, "", err
	}
	of := s.LiveRelease
	if dep == "" {
		dep = s.LiveDeployment
	} else {
		x, err := r.c.Deployments.Get(ctx, owner, dep)
		if err != nil {
			return s, nil, "", err
		}
		if x.Site != id {
			return s, nil, "", fault.Missing("deployment")
		}
		of = x.Release
	}
	if of == "" {
		return s, nil, "", fault.New(fault.Conflict, "no_release", "The site has no live release",
			"rules are tested against a release; deploy the site first")
	}
	tree, err := r.c.Releases.Load(ctx, of)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, "", fault.New(fault.Conflict, "no_release", "The deployment's files are no longer stored",
			"test against a newer deployment")
	}
	if err != nil {
		return s, nil, "", fmt.Errorf("read rules: %w", err)
	}
	return s, tree, dep, nil
}
