package edge

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/build/release"
	"slipway/internal/platform/cache"
	"slipway/internal/platform/fair"
)

// previews finds the addresses of deployments and of branches' previews,
// <label>--<site>.<site domain>, in the view previews. Only visitors ask for them, and
// rarely, so they are looked up when asked for and cached for a short while.
type previews struct {
	known *cache.Cache[string, preview]
	round atomic.Int64 // what was read in an earlier round is not used any more
	slots *fair.Pool   // bounds the queries that strangers can cause at once
}

type preview struct {
	release    release.ID // "" when there is none
	deployment id.Deployment
	backend    string
	runtime    string
	node       string
	until      time.Time
	round      int64
}

const (
	previewFound  = 30 * time.Second
	previewAbsent = 5 * time.Second
)

// errCrowded is the error of a lookup that would be one too many.
var errCrowded = errors.New("too many lookups at once")

func (p *previews) init() {
	// share: total 10000 addresses of deployments and branches, known or unknown; owner 2500; edge the addresses asked for longest ago are looked up again
	p.known = cache.NewShared[string, preview](10_000, 1, 2500)
	// share: total 4 lookups at once; owner 2, in turn; edge waits a second, then 503 with Retry-After
	p.slots = fair.New(fair.Config{Places: 4, Owner: 2, Waiting: 1000, OwnerWaiting: 100})
}

// forget drops everything: a deleted site's deployments go with it, and a branch's address
// serves another deployment.
func (p *previews) forget() {
	p.round.Add(1)
	p.known.Clear()
}

// split takes the label of a deployment's or a branch's address apart.
func split(label string) (preview, site string, ok bool) {
	preview, site, ok = strings.Cut(label, "--")
	if !ok || preview == "" || site == "" || len(label) > 63 {
		return "", "", false
	}
	for _, c := range []byte(preview) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", "", false
		}
	}
	return preview, site, true
}

// preview returns what the address of a deployment or a branch answers with, or nil. The site's own row
// decides whether it is served at all.
func (e *Edge) preview(ctx context.Context, label string) (*target, error) {
	name, host, ok := split(label)
	if !ok {
		return nil, nil
	}
	of := e.table.hosts().find(host)
	if of == nil {
		return nil, nil
	}
	if p, ok := e.previews.known.Get(label); ok && p.round == e.previews.round.Load() && time.Now().Before(p.until) {
		return e.previewTarget(p, of), nil
	}
	p, err := e.previews.known.LoadFor(ctx, string(of.owner), label, func(ctx context.Context) (preview, int64, error) {
		turn, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		done, err := e.previews.slots.Take(turn, fair.Who{Owner: string(of.owner), Site: string(of.site)})
		if err != nil {
			return preview{}, 0, errCrowded
		}
		defer done()
		ctx, cancel = context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		p := preview{round: e.previews.round.Load()}
		err = e.DB.QueryRow(ctx, `
			SELECT release, deployment_id, backend, runtime, node FROM previews
			WHERE label = $1 AND host_label = $2`, name, host).Scan(&p.release, &p.deployment, &p.backend, &p.runtime, &p.node)
		switch {
		case err == nil:
			p.until = time.Now().Add(previewFound)
		case errors.Is(err, sql.ErrNoRows):
			p.until = time.Now().Add(previewAbsent)
		default:
			return preview{}, 0, fmt.Errorf("find preview: %w", err)
		}
		return p, 1, nil
	})
	if err != nil {
		return nil, err
	}
	return e.previewTarget(p, of), nil
}

func (e *Edge) previewTarget(p preview, of *target) *target {
	if p.release == "" {
		return nil
	}
	t := &target{
		site:       of.site,
		owner:      of.owner,
		label:      of.label,
		release:    p.release,
		deployment: p.deployment,
		state:      stateLive,
		backend:    p.backend,
		runtime:    p.runtime,
		node:       p.node,
		preview:    true,
		settings:   of.settings,
		serving:    of.serving,
		capped:     capped{slow: of.slow, reached: of.reached}, // what it sends isn't counted
	}
	if of.state == stateStopped || of.state == statePaused {
		t.state = of.state
	}
	e.source(t)
	return t
}
