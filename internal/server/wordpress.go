package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"slipway/internal/bundle"
	"slipway/internal/db"
	"slipway/internal/deploy"
	"slipway/internal/egress"
	"slipway/internal/framework"
	"slipway/internal/site"
	"slipway/internal/wordpress"
)

// openWordPress makes the service of WordPress sites.
func (h *node) openWordPress(out *egress.Egress, bundles *bundle.Bundles) {
	h.wordpress = wordpress.New(wordpress.Config{DB: h.db, Sites: h.sites, Databases: h.databases, Bundles: bundles, Seal: h.seal, Out: out.Client(5 * time.Minute),
		Dir: h.s.path("wordpress"), Source: h.s.WordPressSource, Task: h.wordPressTask, Say: h.apps.Note, Log: h.s.Log})
}

// wordPressTask asks a deployment's program to run one of our scripts.
func (h *node) wordPressTask(ctx context.Context, deployment string, r *http.Request) (*http.Response, error) {
	e, err := h.apps.Acquire(ctx, deployment)
	if err != nil {
		return nil, err
	}
	if e.Tasks == nil {
		e.Release()
		return nil, errors.New("the program runs no tasks")
	}
	resp, err := e.Tasks.RoundTrip(r)
	if err != nil {
		e.Release()
		return nil, err
	}
	resp.Body = released{resp.Body, e.Release}
	return resp, nil
}

// acquireWordPress is how the guard of a WordPress gets its program.
func (h *node) acquireWordPress(deployment string) func(ctx context.Context) (wordpress.Program, error) {
	return func(ctx context.Context) (wordpress.Program, error) {
		e, err := h.apps.Acquire(ctx, deployment)
		if err != nil {
			return wordpress.Program{}, err
		}
		return wordpress.Program{Transport: e.Transport, Serve: e.Serve, Release: e.Release, Answered: e.Answered}, nil
	}
}

// addWordPress adds what a WordPress finds in its environment. Nothing that the owner sets
// takes its place.
func (h *node) addWordPress(ctx context.Context, p *deploy.Program) error {
	if p.Runtime != framework.WordPress {
		return nil
	}
	address, err := h.visitorsAddress(ctx, p.Site)
	if err != nil {
		return err
	}
	env, secrets, err := h.wordpress.Environment(ctx, p.Site.ID, address)
	if err != nil {
		return err
	}
	for k, v := range env {
		p.Env[k] = v
	}
	p.Secrets = append(p.Secrets, secrets...)
	return nil
}

// visitorsAddress is where visitors know a site: its primary domain, or its own address.
func (h *node) visitorsAddress(ctx context.Context, s site.Site) (string, error) {
	primary, err := h.domains.Primary(ctx, h.db, string(s.ID))
	if err != nil || primary == "" {
		return h.sites.URL(s.Slug), err
	}
	return h.sites.Address(primary), nil
}

// released releases a program when its answer has been read.
type released struct {
	io.ReadCloser
	release func()
}

func (r released) Close() error {
	err := r.ReadCloser.Close()
	r.release()
	return err
}

// forgetWordPress removes what is stored of a deleted site's WordPress.
func (h *node) forgetWordPress(ctx context.Context, id site.ID) error {
	return h.db.Write(ctx, func(tx *db.Tx) error { return h.wordpress.ForgetTx(ctx, tx, id) })
}
