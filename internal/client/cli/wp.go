package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

type wpCommand struct {
	Info  wpInfo  `cmd:"" help:"Show the versions of WordPress, its plugins and themes."`
	Login wpLogin `cmd:"" help:"Print a link that logs in to wp-admin once, within five minutes."`
	Purge wpPurge `cmd:"" help:"Purge the page cache."`
}

type wpInfo struct{ ofSite }

// Run shows a WordPress site.
func (w wpInfo) Run(ctx context.Context, e *Env) error {
	c, s, err := w.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodGet, "/sites/"+s.ID+"/wordpress", nil)
	if err != nil {
		return failure(err)
	}
	if w.JSON {
		return e.json(answer)
	}
	type extension struct {
		Slug, Version, UpdateVersion string
		Active                       bool
	}
	var got struct {
		Version, LatestVersion, PHPVersion string
		Plugins, Themes                    []extension
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	rows := [][]string{{"core", "wordpress", got.Version, got.LatestVersion, "active"}, {"php", "php", got.PHPVersion, "", "active"}}
	for _, x := range got.Plugins {
		rows = append(rows, []string{"plugin", x.Slug, x.Version, x.UpdateVersion, state(x.Active)})
	}
	for _, x := range got.Themes {
		rows = append(rows, []string{"theme", x.Slug, x.Version, x.UpdateVersion, state(x.Active)})
	}
	e.table([]string{"kind", "name", "version", "newest", "status"}, rows)
	return nil
}

func state(active bool) string {
	if active {
		return "active"
	}
	return "inactive"
}

type wpLogin struct{ ofSite }

// Run prints a one-time login link, which is a secret.
func (w wpLogin) Run(ctx context.Context, e *Env) error {
	c, s, err := w.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/wordpress/login", nil)
	if err != nil {
		return failure(err)
	}
	if w.JSON {
		return e.json(answer)
	}
	var got struct{ URL string }
	if err := json.Unmarshal(answer, &got); err != nil {
		return err
	}
	_, err = fmt.Fprintln(e.Out, printable(got.URL))
	return err
}

type wpPurge struct{ ofSite }

// Run purges the page cache.
func (w wpPurge) Run(ctx context.Context, e *Env) error {
	c, s, err := w.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/wordpress/purge-cache", nil)
	if err != nil {
		return failure(err)
	}
	return w.ended(ctx, e, c, answer, "Purged the page cache of "+printable(s.Name))
}
