package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/client/cutover"
	"slipway/internal/client/rest"
)

type planDomain struct {
	named
	From  string        `env:"-" help:"Where the old site answers. Default: https:// and the domain." placeholder:"URL"`
	Watch time.Duration `env:"-" help:"After the change, wait so long until the domain is active with its certificate." placeholder:"DURATION"`
}

// Run shows how to move a domain here without downtime. It changes nothing.
func (p planDomain) Run(ctx context.Context, e *Env) error {
	c, s, err := p.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	_, found, err := p.domain(ctx, e)
	if err != nil {
		return failure(err)
	}
	answer, err := c.Do(ctx, http.MethodGet, "/domains/"+url.PathEscape(found.ID), nil)
	if err != nil {
		return failure(err)
	}
	var d cutover.Domain
	if err := json.Unmarshal(answer, &d); err != nil {
		return err
	}
	before, err := url.Parse(p.From)
	if p.From == "" {
		before, err = url.Parse("https://" + strings.TrimPrefix(d.Name, "*."))
	}
	after, errNew := url.Parse(s.URL)
	if err != nil || errNew != nil || before.Host == "" || before.Scheme != "https" && before.Scheme != "http" {
		return &Failure{exitUsage, fmt.Errorf("--from must be an http or https URL")}
	}
	var compared cutover.Comparison
	if d.Status != "active" || p.From != "" { // an active domain would be compared with itself
		h, err := rest.HTTP(p.CAFile)
		if err != nil {
			return err
		}
		e.say("Comparing %s with %s …", before, printable(s.URL))
		if compared, err = cutover.Compare(ctx, h, before, after); err != nil {
			return failure(err)
		}
	}
	stops := d.Stops()
	if p.JSON {
		b, err := json.Marshal(map[string]any{"domain": answer, "stops": stops, "comparison": compared})
		if err != nil {
			return err
		}
		if err := e.json(b); err != nil {
			return err
		}
	} else {
		d.Print(e.Out, cutover.Site{Name: s.Name, Slug: s.Slug, URL: s.URL}, compared, printable)
	}
	if len(stops) > 0 {
		return fmt.Errorf("%s to solve before you change the records", count(len(stops), "problem"))
	}
	if p.Watch > 0 {
		return watch(ctx, e, c, found.ID, p.Watch)
	}
	return nil
}

// watch waits until a domain is active and has its certificate.
func watch(ctx context.Context, e *Env, c *rest.Client, id string, most time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, &Failure{exitUnreachable, fmt.Errorf("the domain isn't active after %s", most)})
	defer cancel()
	last := ""
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		var d cutover.Domain
		if err := c.Get(ctx, "/domains/"+url.PathEscape(id), &d); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return failure(err)
		}
		if state := d.Status + ", certificate " + d.SSLStatus; state != last {
			last = state
			e.say("%s: %s", printable(d.Name), printable(state))
		}
		if d.Status == "active" && d.SSLStatus == "active" {
			return nil
		}
		select {
		case <-ctx.Done():
			return failure(context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}
