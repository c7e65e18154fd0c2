package edge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"slipway/internal/release"
)

// previews finds the immutable addresses of deployments, <label>--<site>.<site domain>,
// in the view previews. Only visitors ask for them, and rarely, so they are looked up
// when asked for and kept for a short while.
type previews struct {
	known *cache[string, preview]
	slots chan struct{} // bounds the queries that strangers can cause at once
}

type preview struct {
	release release.ID // "" when there is none
	backend string
	node    string
	until   time.Time
}

const (
	previewFound  = 30 * time.Second
	previewAbsent = 5 * time.Second
	previewLabel  = 12 // characters
)

// errCrowded is the error of a lookup that would be one too many.
var errCrowded = errors.New("too many lookups at once")

func (p *previews) init() {
	p.known = newCache[string, preview](10_000)
	p.slots = make(chan struct{}, 4)
}

// forget drops everything, so that a deleted site's deployments go with it.
func (p *previews) forget() { p.known.clear() }

// split takes an immutable address's label apart.
func split(label string) (deployment, site string, ok bool) {
	deployment, site, ok = strings.Cut(label, "--")
	if !ok || len(deployment) != previewLabel || site == "" {
		return "", "", false
	}
	for _, c := range []byte(deployment) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return "", "", false
		}
	}
	return deployment, site, true
}

// preview returns what the immutable address answers with, or nil. The site's own row
// decides whether it is served at all.
func (e *Edge) preview(ctx context.Context, label string) (*target, error) {
	deployment, host, ok := split(label)
	if !ok {
		return nil, nil
	}
	of := e.table.find(host)
	if of == nil {
		return nil, nil
	}
	if p, ok := e.previews.known.get(label); ok && time.Now().Before(p.until) {
		return p.target(of), nil
	}
	p, err := e.previews.known.loading.do(ctx, label, func(ctx context.Context) (preview, error) {
		select {
		case e.previews.slots <- struct{}{}:
			defer func() { <-e.previews.slots }()
		case <-time.After(time.Second):
			return preview{}, errCrowded
		}
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		var p preview
		err := e.DB.QueryRow(ctx, `
			SELECT release, backend, node FROM previews
			WHERE label = $1 AND host_label = $2`, deployment, host).Scan(&p.release, &p.backend, &p.node)
		switch {
		case err == nil:
			p.until = time.Now().Add(previewFound)
		case errors.Is(err, sql.ErrNoRows):
			p.until = time.Now().Add(previewAbsent)
		default:
			return preview{}, fmt.Errorf("find preview: %w", err)
		}
		e.previews.known.put(label, p, 1)
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	return p.target(of), nil
}

func (p preview) target(of *target) *target {
	if p.release == "" {
		return nil
	}
	t := &target{site: of.site, label: of.label, release: p.release, state: stateLive, backend: p.backend, node: p.node, immutable: true}
	if of.state == stateStopped {
		t.state = stateStopped
	}
	return t
}
