package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"slipway/internal/platform/text"
)

type sitesCommand struct {
	List   listSites  `cmd:"" help:"List your sites."`
	Get    getSite    `cmd:"" help:"Show a site."`
	Start  startSite  `cmd:"" help:"Serve a stopped site again."`
	Stop   stopSite   `cmd:"" help:"Show visitors an offline page. Everything is kept."`
	Delete deleteSite `cmd:"" help:"Delete a site."`
}

type listSites struct{ target }

// Run lists sites.
func (l listSites) Run(ctx context.Context, e *Env) error {
	c, err := l.client(e)
	if err != nil {
		return failure(err)
	}
	all, err := c.List(ctx, "/sites")
	if err != nil {
		return failure(err)
	}
	return show(e, l.JSON, all, []string{"site", "status", "type", "url", "updated"}, func(s site) []string {
		return []string{s.Slug, s.Status, s.Type, s.URL, e.ago(s.UpdatedAt)}
	})
}

type getSite struct{ ofSite }

// Run shows a site.
func (g getSite) Run(ctx context.Context, e *Env) error {
	c, s, err := g.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodGet, "/sites/"+s.ID, nil)
	if err != nil {
		return failure(err)
	}
	return showSite(e, answer, g.JSON)
}

func showSite(e *Env, answer json.RawMessage, asJSON bool) error {
	if asJSON {
		return e.json(answer)
	}
	var s site
	if err := json.Unmarshal(answer, &s); err != nil {
		return err
	}
	repository := ""
	if s.Repository != nil {
		repository = s.Repository.URL + " " + s.Repository.Branch
	}
	e.table([]string{"field", "value"}, [][]string{
		{"name", s.Name},
		{"slug", s.Slug},
		{"id", s.ID},
		{"status", strings.TrimSpace(s.Status + " " + s.StatusReason)},
		{"url", s.URL},
		{"repository", repository},
	})
	return nil
}

type (
	startSite struct{ ofSite }
	stopSite  struct{ ofSite }
)

func (o ofSite) post(ctx context.Context, e *Env, what string) error {
	c, s, err := o.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/"+what, nil)
	if err != nil {
		return failure(err)
	}
	return showSite(e, answer, o.JSON)
}

// Run starts a site.
func (s startSite) Run(ctx context.Context, e *Env) error { return s.post(ctx, e, "start") }

// Run stops a site.
func (s stopSite) Run(ctx context.Context, e *Env) error { return s.post(ctx, e, "stop") }

type deleteSite struct {
	ofSite
	Yes string `env:"-" help:"Confirm by the site's slug instead of typing it." placeholder:"SLUG"`
}

// Run deletes a site.
func (d deleteSite) Run(ctx context.Context, e *Env) error {
	c, s, err := d.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	if err := e.confirm(ctx, "Deleting "+s.Name+" removes its deployments, domains and data.", s.Slug, d.Yes); err != nil {
		return err
	}
	answer, err := c.Do(ctx, http.MethodDelete, "/sites/"+s.ID, nil)
	if err != nil {
		return failure(err)
	}
	if d.JSON {
		return e.json(answer)
	}
	e.say("Deleted %s", printable(s.Name))
	return nil
}

type openCommand struct{ ofSite }

// Run prints the site's address, and opens it in a browser on a desktop.
func (o openCommand) Run(ctx context.Context, e *Env) error {
	_, s, err := o.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	address, err := webAddress(s.URL)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.Out, address)
	opener := []string{"xdg-open", address}
	switch runtime.GOOS {
	case "darwin":
		opener[0] = "open"
	case "windows":
		opener = []string{"rundll32", "url.dll,FileProtocolHandler", address}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return nil
		}
	}
	if _, err := exec.LookPath(opener[0]); err == nil && e.TTY {
		return exec.CommandContext(ctx, opener[0], opener[1:]...).Start()
	}
	return nil
}

// webAddress returns an address from a server if it is http or https: the system's opener runs programs for other
// schemes.
func webAddress(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return "", fmt.Errorf("the server names %q as the site's address, which is not a web address", text.Clip(s, 200))
	}
	return u.String(), nil
}
