package edge

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"slipway/internal/endpoint"
	"slipway/internal/fastpath"
	"slipway/internal/proxy"
)

// hostPasses reports whether requests for a host are passed on to a program by the fast path.
func (e *Edge) hostPasses(host string) bool {
	t := e.leads(host).program()
	return !e.control[host] && t != nil && t.pages == nil
}

// passes reports the same of a connection.
func (e *Edge) passes(at *fastpath.Place) bool {
	t := e.wayOf(at).program()
	return t != nil && t.pages == nil
}

// pass answers a request with what a program says, as program does, without net/http. It
// leaves to net/http what is anybody else's: files, a program that sleeps, pages of ours
// before the program was asked.
func (e *Edge) pass(q *fastpath.Request) (taken, ok bool) {
	t := e.wayOf(q.Place).program()
	if t == nil || !proxy.Passable(q) {
		return false, false
	}
	if t.release != "" && len(q.Path) > 1 {
		if _, ok := e.findAsset(context.Background(), t, string(q.Path[1:])); ok {
			return false, false
		}
	}
	begun := time.Now()
	p, awake := t.programs.Awake(t.deployment)
	if !awake {
		return false, false
	}
	defer p.Release()
	if p.Upstream == nil || p.Serve != nil {
		return false, false
	}
	out, err := e.proxy.Pass(q, p, begun)
	if err != nil {
		method := http.MethodGet
		if q.Head {
			method = http.MethodHead
		}
		failed(p, method, string(q.Path), err)
		out.Answer(q, func(w http.ResponseWriter) {
			e.offer(w.Header(), 1)
			e.programFailed(record(w), &http.Request{Method: method, Header: http.Header{}}, t, err)
		})
	}
	if out.Taken {
		e.passed(q, t, p, &out, begun)
	}
	return out.Taken, out.Whole
}

// passed counts an answer.
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
	e.visits.Passed(t.visits, t.accessLog(), q, out.Status, out.Bytes, shown)
	e.visits.Count(t.visits, out.Status, out.Bytes, shown)
}
