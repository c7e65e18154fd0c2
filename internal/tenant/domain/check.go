package domain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fair"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
)

// checkBudget limits an availability check. After checkHedge without an answer from the registry, the DNS is queried
// too.
const (
	checkBudget = 3 * time.Second
	checkHedge  = 700 * time.Millisecond
)

// Sources of an answer.
const (
	SourceLocal = "local" // this installation's domains
	SourceRDAP  = "rdap"  // the registry
	SourceDNS   = "dns"   // presence or absence of a delegation
)

// Availability is whether a name can be registered, and for how much.
type Availability struct {
	Domain    string // A-labels, lower case
	Available bool
	Price     int    // whole units of the currency, also for taken names
	Currency  string // ISO 4217 code
	Source    string // local, rdap or dns
}

// Check reports whether name can be registered. It returns within about 3 s. Faults: Invalid for names that no registry
// sells; Unavailable with RetryAfter if only the registry may be asked and it doesn't answer.
func (d *Domains) Check(ctx context.Context, name string) (Availability, error) {
	name, err := registrable(name)
	if err != nil {
		return Availability{}, err
	}
	price := d.prices.Of(name)
	a := Availability{Domain: name, Available: true, Price: price.Amount, Currency: price.Currency, Source: SourceLocal}
	ours, err := d.ours(ctx, d.c.DB, name)
	if err != nil {
		return Availability{}, err
	}
	if ours {
		a.Available = false
		return a, nil
	}
	if d.c.Registry == "local" {
		return a, nil
	}
	v, err := d.outside(ctx, name)
	switch {
	case ctx.Err() != nil:
		return Availability{}, context.Cause(ctx)
	case err == nil:
		a.Available, a.Source = !v.taken, v.source
		return a, nil
	case d.c.Registry == "rdap":
		d.c.Log.WarnContext(ctx, "domain registry did not respond", "domain", name, "err", err)
		retry := 5 * time.Second
		var s *silence
		if errors.As(err, &s) {
			retry = s.retry
		}
		return Availability{}, &fault.Error{
			Kind: fault.Unavailable, Message: "The domain registry is unavailable",
			Details: "Try again later", Code: "registry_unavailable", RetryAfter: ceilSecond(retry),
		}
	default:
		d.c.Log.InfoContext(ctx, "neither domain registry nor DNS responded", "domain", name, "err", err)
		return a, nil
	}
}

func ceilSecond(d time.Duration) time.Duration {
	return time.Duration(math.Ceil(d.Seconds())) * time.Second
}

// ours reports whether this installation's data proves that name is registered: it is a domain here, a name below it
// was proven here, or sites have their host names below it.
func (d *Domains) ours(ctx context.Context, r db.Reader, name string) (bool, error) {
	if site, err := ascii(d.c.SiteDomain); err == nil && zoneOf(site) == name {
		return true, nil
	}
	var n int
	err := r.QueryRow(ctx, `
		SELECT count(*) FROM domains
		WHERE zone = $1 AND (name = $1 OR proven_at <> 0)`, name).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look up %s: %w", name, err)
	}
	return n > 0, nil
}

// verdict is the answer of a registry or the DNS about a name.
type verdict struct {
	taken  bool
	source string
}

// outside asks the registry, and the DNS if allowed. Answers are cached briefly, and concurrent queries of a name are
// merged.
func (d *Domains) outside(ctx context.Context, name string) (verdict, error) {
	if v, ok := d.known.get(name); ok {
		return v, nil
	}
	answer := d.flight.DoChan(name, func() (any, error) {
		// Detached from the caller's context, since others may wait for the same answer.
		who := fair.Who{Owner: db.Share(ctx)}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.budget)
		defer cancel()
		done, err := d.asking.Take(ctx, who)
		if err != nil {
			return nil, errors.New("too many checks at once")
		}
		defer done()
		v, err := d.askOutside(ctx, name)
		if err == nil {
			d.known.put(name, v)
		}
		return v, err
	})
	select {
	case <-ctx.Done():
		return verdict{}, ctx.Err()
	case r := <-answer:
		if r.Err != nil {
			return verdict{}, r.Err
		}
		return r.Val.(verdict), nil
	}
}

// askOutside prefers the registry. It also queries the DNS if the registry fails or is slow, and uses that answer if
// none comes from the registry.
func (d *Domains) askOutside(ctx context.Context, name string) (verdict, error) {
	type reply struct {
		taken bool
		err   error
	}
	registry, zone := make(chan reply, 1), make(chan reply, 1)
	go func() {
		var r reply
		r.err = panics.Call(func() (err error) { r.taken, err = d.rdap.taken(ctx, name); return err })
		registry <- r
	}()
	if d.c.Registry == "rdap" {
		r := <-registry // ends with ctx
		return verdict{r.taken, SourceRDAP}, r.err
	}
	var asked bool
	askDNS := func() {
		if asked {
			return
		}
		asked = true
		go func() {
			var r reply
			r.err = panics.Call(func() (err error) { r.taken, err = delegated(ctx, d.c.Resolver, name); return err })
			zone <- r
		}()
	}
	hedge := time.NewTimer(d.hedge)
	defer hedge.Stop()
	var fromRegistry, fromZone *reply
	for fromRegistry == nil || fromZone == nil {
		select {
		case r := <-registry:
			if r.err == nil {
				return verdict{r.taken, SourceRDAP}, nil
			}
			fromRegistry = &r
			askDNS()
		case r := <-zone:
			fromZone = &r
		case <-hedge.C:
			askDNS()
		case <-ctx.Done():
			// The remaining sources have timed out.
			for _, w := range []struct {
				from chan reply
				to   **reply
			}{{registry, &fromRegistry}, {zone, &fromZone}} {
				if *w.to != nil {
					continue
				}
				select {
				case r := <-w.from:
					*w.to = &r
				default:
					*w.to = &reply{err: ctx.Err()}
				}
			}
		}
	}
	if fromRegistry.err == nil {
		return verdict{fromRegistry.taken, SourceRDAP}, nil
	}
	if fromZone.err == nil {
		return verdict{fromZone.taken, SourceDNS}, nil
	}
	return verdict{}, errors.Join(fromRegistry.err, fromZone.err)
}

// answers caches a limited number of verdicts.
type answers struct {
	mu sync.Mutex // guards kept
	// share: total 4,096 answers to availability checks; owner what others leave; edge the check asks again
	kept map[string]keptAnswer
}

type keptAnswer struct {
	verdict
	until time.Time
}

const answersMax = 4096

func (a *answers) get(name string) (verdict, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.kept[name]
	if !ok || time.Now().After(k.until) {
		return verdict{}, false
	}
	return k.verdict, true
}

// put caches "taken" by a registry for ten minutes and other verdicts for one minute, so that a name that was just
// bought doesn't stay available.
func (a *answers) put(name string, v verdict) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.kept == nil {
		a.kept = map[string]keptAnswer{}
	}
	if len(a.kept) >= answersMax {
		for n, k := range a.kept {
			if now.After(k.until) {
				delete(a.kept, n)
			}
		}
		for n := range a.kept { // none has expired: evict any
			if len(a.kept) < answersMax {
				break
			}
			delete(a.kept, n)
		}
	}
	keep := time.Minute
	if v.taken && v.source == SourceRDAP {
		keep = 10 * time.Minute
	}
	a.kept[name] = keptAnswer{v, now.Add(keep)}
}
