package edge

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"slipway/internal/edge/endpoint"
	"slipway/internal/edge/fastpath"
	"slipway/internal/edge/proxy"
	"slipway/internal/platform/fair"
)

// hostPasses reports whether the fast path forwards a host's requests to a program.
func (e *Edge) hostPasses(host string) bool {
	t := e.leads(host).program()
	return !e.isControl(host) && t != nil && t.passes
}

// passes reports the same for a connection.
func (e *Edge) passes(at *fastpath.Place) bool {
	t := e.wayOf(at).program()
	return t != nil && t.passes
}

// pass returns a function that forwards the request to a program without net/http, as [Edge.program] does. It returns
// nil if net/http must answer: for files, and for a program that sleeps.
func (e *Edge) pass(q *fastpath.Request) (answer func() (whole bool)) {
	t := e.wayOf(q.Place).program()
	if t == nil || !proxy.Passable(q) {
		return nil
	}
	if t.release != "" && len(q.Path) > 1 && (q.Method == http.MethodGet || q.Method == http.MethodHead) {
		if _, ok := e.trees.Get(t.release); !ok && q.Shares {
			return nil // the connection's other requests must not wait for it
		}
		if _, ok := e.findAsset(context.Background(), t, string(q.Path[1:])); ok {
			return nil
		}
	}
	begun := time.Now()
	p, awake := t.programs.Awake(t.deployment)
	if !awake {
		return nil
	}
	if p.Upstream == nil || p.Serve != nil || p.MaxBody > 0 && q.Length > p.MaxBody {
		p.Release()
		return nil
	}
	return func() bool { return e.passTo(q, t, p, begun) }
}

// passTo forwards a request to a program. If the program exits before it got the request, passTo tries another, as
// [Edge.program] does.
func (e *Edge) passTo(q *fastpath.Request, t *target, p *endpoint.Endpoint, begun time.Time) (whole bool) {
	for tries := 1; ; tries++ {
		out, ended := e.passOnce(q, t, p, begun, tries == mostTries)
		if !ended {
			return out.Whole
		}
		var err error
		if p, err = e.again(t); err == nil {
			continue
		}
		if q.Gone() {
			return false
		}
		out.Answer(q, func(w http.ResponseWriter) { e.asleep(record(w), e.ownRequest(q, w), t, err) })
		e.metrics.answered(out.Status, out.Bytes)
		return out.Whole
	}
}

// passOnce forwards a request once. ended reports that the program exited before it got the request, unless this was
// the last try.
func (e *Edge) passOnce(q *fastpath.Request, t *target, p *endpoint.Endpoint, begun time.Time, last bool) (out proxy.Passed, ended bool) {
	defer p.Release()
	who := fair.Who{Owner: string(t.owner), Site: string(t.site)}
	if q.Shares {
		who.Visitor = fair.Visitor(q.Remote.String())
	}
	out, err := e.proxy.Pass(q, p, who, begun)
	if errors.Is(err, proxy.ErrUnreached) && !last && p.Ends(context.Background()) {
		return out, true
	}
	if err != nil {
		out.Answer(q, func(w http.ResponseWriter) {
			r := e.ownRequest(q, w)
			rec := record(w)
			rec.Request = out.Request
			failed(p, rec.RequestID(), r.Method, string(q.Path), err)
			e.programFailed(rec, r, t, err)
		})
	}
	e.passed(q, t, p, &out, begun)
	return out, false
}

// again returns a program to forward to after the previous one exited.
func (e *Edge) again(t *target) (*endpoint.Endpoint, error) {
	p, err := t.programs.Acquire(context.Background(), t.deployment)
	if err != nil {
		return nil, err
	}
	if p.Upstream == nil {
		p.Release()
		return nil, proxy.ErrUnreached
	}
	return p, nil
}

// ownRequest returns the parts of a request that our own pages need.
func (e *Edge) ownRequest(q *fastpath.Request, w http.ResponseWriter) *http.Request {
	r := &http.Request{Method: q.Method, Header: http.Header{}}
	major := 1
	if q.Shares {
		major = 2
	}
	e.offer(w.Header(), major)
	return r
}

// passed counts a forwarded response.
func (e *Edge) passed(q *fastpath.Request, t *target, p *endpoint.Endpoint, out *proxy.Passed, begun time.Time) {
	e.metrics.answered(out.Status, out.Bytes)
	if out.Status == 0 {
		return
	}
	if p.Answered != nil {
		p.Answered(out.Status, out.Bytes, cmp.Or(out.First, time.Since(begun)))
	}
	if t.visits == nil {
		return
	}
	shown := out.Page && out.Status == http.StatusOK
	e.visits.Passed(t.visits, t.accessLog(), q, out.Status, out.Bytes, shown, out.Request)
	e.visits.Count(t.visits, out.Status, out.Bytes, shown)
}
