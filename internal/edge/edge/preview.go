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

// previews looks up the addresses of deployments and branches, <label>--<site>.<site domain>, in the view previews.
// They are visited rarely, so they are read on demand and cached for a short time.
type previews struct {
	known *cache.Cache[string, preview]
	round atomic.Int64 // entries of earlier rounds are ignored
	slots *fair.Pool   // bounds concurrent queries that strangers can cause
}

type preview struct {
	release    release.ID // empty if the address is unknown
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

// errCrowded is returned when too many lookups wait.
var errCrowded = errors.New("too many lookups at once")

func (p *previews) init() {
	// share: total 10000 addresses of deployments and branches, known or unknown; owner 2500; edge the addresses asked for longest ago are looked up again
	p.known = cache.NewShared[string, preview](10_000, 1, 2500)
	// share: total 4 lookups at once; owner 2, in turn; edge waits a second, then 503 with Retry-After
	p.slots = fair.New(fair.Config{Places: 4, Owner: 2, Waiting: 1000, OwnerWaiting: 100})
}

// forget drops all entries: deleting a site removes its deployments, and a branch's address may serve a new deployment.
func (p *previews) forget() {
	p.round.Add(1)
	p.known.Clear()
}

// split separates the labels of a preview address.
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

// preview returns the target of a deployment's or branch's address, or nil. The site's own row decides whether it is
// served at all.
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
		capped:     capped{slow: of.slow, reached: of.reached}, // its responses aren't counted
	}
	if of.state == stateStopped || of.state == statePaused {
		t.state = of.state
	}
	e.source(t)
	return t
}
