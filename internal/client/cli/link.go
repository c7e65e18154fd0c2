package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/client/folder"
	"slipway/internal/client/rest"
)

// link says which site a folder belongs to. It is kept in .slipway/project.json, for this machine alone.
type link struct {
	Server string `json:"server"`
	SiteID string `json:"siteId"`
	Slug   string `json:"slug"`
}

const linkFile = ".slipway/project.json"

// findLink returns the link of a folder or the nearest one above it, up to the top of its Git work tree,
// and where that is. It is empty where there is none.
func findLink(dir string) (l link, at string, err error) {
	for {
		text, err := os.ReadFile(filepath.Join(dir, linkFile))
		if err == nil {
			if err := json.Unmarshal(text, &l); err != nil {
				return l, dir, fmt.Errorf("%s is damaged: run slipway link again", filepath.Join(dir, linkFile))
			}
			return l, dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return l, "", err
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil || filepath.Dir(dir) == dir {
			return link{}, "", nil
		}
		dir = filepath.Dir(dir)
	}
}

// site is what the commands need of one.
type site struct {
	ID            string
	Name          string
	Slug          string
	Type          string
	Source        string
	Status        string
	StatusReason  string
	URL           string
	NeedsRedeploy bool
	UpdatedAt     string
	Repository    *struct{ URL, Branch string }
}

// ofSite are the flags of commands about a site.
type ofSite struct {
	target
	Site string `env:"SLIPWAY_SITE" help:"Site, by its slug or id. Default: the linked one." short:"s" placeholder:"SITE"`
}

// find returns the site that a command is about.
func (o ofSite) find(ctx context.Context, e *Env) (*rest.Client, site, error) {
	c, err := o.client(e)
	if err != nil {
		return nil, site{}, err
	}
	name := o.Site
	if name == "" {
		l, _, err := findLink(e.Dir)
		if err != nil {
			return nil, site{}, err
		}
		if l.Server == c.Server() {
			name = l.SiteID
		}
	}
	if name == "" {
		return nil, site{}, needed("which site? Give --site, link this folder with slipway link, or create a site from it with slipway init")
	}
	s, err := siteNamed(ctx, c, name)
	return c, s, err
}

// siteNamed returns a site by its id or slug.
func siteNamed(ctx context.Context, c *rest.Client, name string) (s site, err error) {
	if strings.HasPrefix(name, "site_") {
		return s, c.Get(ctx, "/sites/"+url.PathEscape(name), &s)
	}
	rows, err := c.List(ctx, "/sites?search="+url.QueryEscape(name))
	if err != nil {
		return s, err
	}
	for _, row := range rows {
		if err := json.Unmarshal(row, &s); err != nil {
			return s, err
		}
		if s.Slug == name {
			return s, nil
		}
	}
	return site{}, &Failure{exitMissing, fmt.Errorf("there is no site %q: slipway sites list shows those that you have", name)}
}

type linkCommand struct {
	target
	Site string `arg:"" optional:"" help:"Site, by its slug or id."`
}

// Run links the working directory.
func (l linkCommand) Run(ctx context.Context, e *Env) error {
	c, err := l.client(e)
	if err != nil {
		return failure(err)
	}
	name := l.Site
	if name == "" {
		if name, err = chooseSite(ctx, e, c); err != nil {
			return failure(err)
		}
	}
	s, err := siteNamed(ctx, c, name)
	if err != nil {
		return failure(err)
	}
	if err := writeLink(e.Dir, link{c.Server(), s.ID, s.Slug}); err != nil {
		return err
	}
	e.say("Linked to %s (%s)", printable(s.Name), s.URL)
	return nil
}

// writeLink links a folder.
func writeLink(dir string, l link) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, ".slipway")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Its own ignore file keeps it out of commits, whatever the repository's says.
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "project.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o644),
	)
}

// chooseSite takes the one site whose repository is a remote of this work tree, or asks.
func chooseSite(ctx context.Context, e *Env, c *rest.Client) (string, error) {
	rows, err := c.List(ctx, "/sites")
	if err != nil {
		return "", err
	}
	var all, same []site
	remotes := folder.Remotes(ctx, e.Dir)
	for _, row := range rows {
		var s site
		if err := json.Unmarshal(row, &s); err != nil {
			return "", err
		}
		all = append(all, s)
		if s.Repository != nil && remotes[folder.Repository(s.Repository.URL)] {
			same = append(same, s)
		}
	}
	if len(same) == 1 {
		return same[0].ID, nil
	}
	if !e.Ask {
		return "", needed("which site? Name it: slipway link SITE")
	}
	if len(all) == 0 {
		return "", &Failure{exitMissing, errors.New("you have no site yet: create one in the dashboard")}
	}
	for _, s := range all {
		e.say("  %-30s %s", printable(s.Slug), s.URL)
	}
	fmt.Fprint(e.Err, "Site: ")
	line, err := e.line(ctx)
	if err == nil && line == "" {
		err = needed("no site was chosen")
	}
	return line, err
}

type unlinkCommand struct{}

// Run removes the link.
func (unlinkCommand) Run(e *Env) error {
	l, at, err := findLink(e.Dir)
	if err != nil {
		return err
	}
	if at == "" {
		return &Failure{exitMissing, errors.New("this folder isn't linked to a site")}
	}
	if err := os.Remove(filepath.Join(at, linkFile)); err != nil {
		return err
	}
	e.say("Unlinked from %s", printable(l.Slug))
	return nil
}
