package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"slipway/internal/client/folder"
	"slipway/internal/client/inside"
	"slipway/internal/client/rest"
)

// link connects a folder to a site. It is stored in .slipway/project.json and valid only where this machine wrote it: a
// file from a repository could make its author's victim replace another site or send a key.
type link struct {
	Server string `json:"server"`
	SiteID string `json:"siteId"`
	Slug   string `json:"slug"`
}

const (
	linkFile = ".slipway/project.json"
	maxLink  = 64 << 10
)

// found is a link and its folder. The zero value means no link.
type found struct {
	link
	at string
}

// findLink returns the link of a folder or of the nearest parent, up to the top of its Git work tree. foreign is the
// nearest link that this machine didn't write. Unreadable links, such as in another user's folder, are ignored.
func (e *Env) findLink() (l, foreign found) {
	for dir := e.Dir; ; dir = filepath.Dir(dir) {
		f := found{at: dir}
		if text, _, err := inside.Read(dir, linkFile, maxLink); err == nil && json.Unmarshal(text, &f.link) == nil {
			if e.wrote(f) {
				return f, foreign
			}
			if foreign.at == "" {
				foreign = f
			}
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil || filepath.Dir(dir) == dir {
			return l, foreign
		}
	}
}

// record returns the path of the file, next to the accounts, that records which link this machine wrote for a folder.
func (e *Env) record(dir string) (folder, name string, err error) {
	dir, err = filepath.EvalSymlinks(dir)
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(filepath.Dir(e.Store.Path()), "links"), hex.EncodeToString(sum[:16]) + ".json", err
}

// wrote reports whether this machine wrote a link.
func (e *Env) wrote(f found) bool {
	folder, name, err := e.record(f.at)
	if err != nil {
		return false
	}
	text, _, err := inside.Read(folder, name, maxLink)
	var own link
	return err == nil && json.Unmarshal(text, &own) == nil && own == f.link
}

// writeLink links a folder and records that this machine did.
func (e *Env) writeLink(dir string, l link) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	folder, name, err := e.record(dir)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		err = inside.Write(folder, name, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("record the link: %w", err)
	}
	// A .gitignore of its own keeps the link out of commits.
	return errors.Join(
		inside.Write(dir, linkFile, text, 0o644),
		inside.Write(dir, ".slipway/.gitignore", []byte("*\n"), 0o644),
	)
}

// adopt asks the user whether to accept a link that this machine didn't write, and then writes it. It shows the site
// that the server has for the link's id, since the file may lie.
func (t target) adopt(ctx context.Context, e *Env) error {
	l, f := e.findLink()
	if l.at != "" || f.at == "" {
		return nil
	}
	server, err := rest.Origin(f.Server)
	known := err == nil
	if t.Server != "" {
		if wanted, err := rest.Origin(t.Server); err != nil || wanted != server {
			return err // it is for another server
		}
	} else if known {
		_, err = e.Store.Account(server)
		known = err == nil
	}
	file := filepath.Join(f.at, linkFile)
	if !e.Ask || !known {
		command := "slipway link SITE"
		if known {
			command += " --server " + server
		}
		return needed("%s was not written on this machine, so it doesn't count: link the folder yourself with %s, or give --site", file, command)
	}
	t.Server = server
	c, err := t.client(e)
	if err != nil {
		return err
	}
	s, err := siteNamed(ctx, c, f.SiteID)
	if err != nil {
		return err
	}
	e.say("%s was not written on this machine. It links the folder to %s (%s) at %s.", printable(file), printable(s.Name),
		printable(s.URL), server)
	if yes, err := e.yes(ctx, "Use this link?"); err != nil || !yes {
		return cmp.Or(err, needed("nothing was done: link the folder yourself with slipway link SITE, or give --site"))
	}
	return e.writeLink(f.at, link{server, s.ID, s.Slug})
}

// site is a site in API responses, as far as commands need it.
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

// ofSite holds the flags of commands about a site.
type ofSite struct {
	target
	Site string `env:"SLIPWAY_SITE" help:"Site, by its slug or id. Default: the linked one." short:"s" placeholder:"SITE"`
}

// find returns the site of a command.
func (o ofSite) find(ctx context.Context, e *Env) (*rest.Client, site, error) {
	if o.Site == "" {
		if err := o.adopt(ctx, e); err != nil {
			return nil, site{}, err
		}
	}
	c, err := o.client(e)
	if err != nil {
		return nil, site{}, err
	}
	name := o.Site
	if name == "" {
		if l, _ := e.findLink(); l.Server == c.Server() {
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
	if err := e.writeLink(e.Dir, link{c.Server(), s.ID, s.Slug}); err != nil {
		return err
	}
	e.say("Linked to %s (%s)", printable(s.Name), printable(s.URL))
	return nil
}

// chooseSite returns the only site whose repository is a remote of this work tree, or asks.
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
		e.say("  %-30s %s", printable(s.Slug), printable(s.URL))
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
	l, foreign := e.findLink()
	if l.at == "" {
		l = foreign
	}
	if l.at == "" {
		return &Failure{exitMissing, errors.New("this folder isn't linked to a site")}
	}
	if err := inside.Remove(l.at, linkFile); err != nil {
		return err
	}
	if folder, name, err := e.record(l.at); err == nil {
		_ = os.Remove(filepath.Join(folder, name)) // useless without the link
	}
	e.say("Unlinked from %s", printable(l.Slug))
	return nil
}
