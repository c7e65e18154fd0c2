package webhook

import (
	"context"
	"fmt"
	"sync"
	"time"

	"slipway/internal/platform/chunk"
	"slipway/internal/platform/db"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/webhook/delivery"
)

// senders run requests in reused goroutines, whose stacks have already grown to the size that TLS and HTTP need.
type senders struct {
	w       *Webhooks
	results chan<- outcome
	jobs    chan flight
	quit    chan struct{} // closed when nothing more is to be sent
	all     sync.WaitGroup
	mu      sync.Mutex // guards idle
	idle    int
}

// maxIdle caps the idle senders.
const maxIdle = 256

func newSenders(w *Webhooks, results chan<- outcome) *senders {
	return &senders{w: w, results: results, jobs: make(chan flight), quit: make(chan struct{})}
}

func (s *senders) end() {
	close(s.quit)
	s.all.Wait()
}

// launch reads the events outside the dispatcher's transaction and passes the flights to senders.
func (s *senders) launch(ctx context.Context, list []flight) {
	if err := panics.Call(func() error { return readEvents(ctx, s.w.c.DB, list) }); err != nil {
		if ctx.Err() == nil {
			s.w.c.Log.ErrorContext(ctx, "webhook events not read", "err", err)
		}
		for i := range list {
			list[i].Name = ""
		}
	}
	for _, f := range list {
		if f.Name == "" { // not read: released for a later retry
			s.done(outcome{f, delivery.Result{Abandoned: true, Wait: time.Second}})
			continue
		}
		select {
		case s.jobs <- f:
		default:
			// uncaught: send catches
			s.all.Go(func() { s.work(ctx, f) })
		}
	}
}

// work sends flights until enough senders are idle.
func (s *senders) work(ctx context.Context, f flight) {
	for {
		s.done(s.w.send(ctx, f))
		if !s.rest(1) {
			return
		}
		select {
		case f = <-s.jobs:
			s.rest(-1)
		case <-s.quit:
			return
		}
	}
}

// rest changes the number of idle senders, and reports whether one more may be idle.
func (s *senders) rest(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle+n > maxIdle {
		return false
	}
	s.idle += n
	return true
}

// done passes an outcome on. The host's slot is released before the outcome is stored.
func (s *senders) done(o outcome) {
	s.w.hosts.Ended(o.Request, o.Result)
	s.results <- o
}

// send performs one request. Errors are part of the outcome, and a panic is a failed attempt.
func (w *Webhooks) send(ctx context.Context, f flight) (o outcome) {
	begun := db.Now()
	if err := panics.Call(func() error { o = w.request(ctx, f); return nil }); err != nil {
		return outcome{f, delivery.Result{Started: begun, Err: delivery.ReasonInternal}}
	}
	return o
}

func (w *Webhooks) request(ctx context.Context, f flight) outcome {
	keys, err := w.keys(f)
	if err != nil {
		w.c.Log.ErrorContext(ctx, "webhook secret not decrypted", "webhook", f.hook, "err", err)
		return outcome{f, delivery.Result{Started: db.Now(), Err: delivery.ReasonUnreadable}}
	}
	s := delivery.Sender{Hosts: w.hosts, Out: w.c.Out.Transport, Timeout: w.c.Timeout}
	result := s.Send(ctx, &f.Request, keys)
	return outcome{f, result}
}

// keys decrypts the signing secrets: the current one, and during a rotation also the previous one.
func (w *Webhooks) keys(f flight) (keys []string, err error) {
	for _, sealed := range []string{f.secret, f.previous} {
		if sealed == "" && len(keys) > 0 {
			break
		}
		key, err := w.c.Seal.Open(sealed, sealPurpose+string(f.hook))
		if err != nil {
			return nil, err
		}
		keys = append(keys, string(key))
	}
	return keys, nil
}

var eventText = chunk.Text(func(n int) string {
	return `SELECT id, name, body, hops FROM webhook_events WHERE id IN (` + chunk.Marks(1, n) + `)`
})

// readEvents loads the events of flights.
func readEvents(ctx context.Context, r db.Reader, list []flight) error {
	of := map[string][]int{}
	var ids []string
	for i, f := range list {
		if of[f.Event] == nil {
			ids = append(ids, f.Event)
		}
		of[f.Event] = append(of[f.Event], i)
	}
	return chunk.Each(ids, func(part []string) error {
		args := make([]any, len(part))
		for i, id := range part {
			args[i] = id
		}
		rows, err := r.Query(ctx, eventText(len(part)), args...)
		_, err = db.Collect(rows, err, func(row db.Scanner) (_ struct{}, err error) {
			var id, name string
			var body []byte
			var hops int
			err = row.Scan(&id, &name, &body, &hops)
			for _, i := range of[id] {
				list[i].Name, list[i].Body, list[i].Hops = name, body, hops
			}
			return struct{}{}, err
		})
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		return nil
	})
}
