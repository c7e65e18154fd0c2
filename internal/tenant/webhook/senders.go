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

// senders make requests, each in a goroutine that is used again: the stack that TLS and HTTP
// need has grown by then.
type senders struct {
	w       *Webhooks
	results chan<- outcome
	jobs    chan flight
	quit    chan struct{} // closed when there is nothing more to send
	all     sync.WaitGroup
	mu      sync.Mutex // guards idle
	idle    int
}

// maxIdle is how many senders wait for something to send.
const maxIdle = 256

func newSenders(w *Webhooks, results chan<- outcome) *senders {
	return &senders{w: w, results: results, jobs: make(chan flight), quit: make(chan struct{})}
}

// end waits until all requests have ended.
func (s *senders) end() {
	close(s.quit)
	s.all.Wait()
}

// launch reads what is to be sent, outside the dispatcher's transaction, and hands it to senders.
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
		if f.Name == "" { // unread: it goes back, and waits
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

// work sends one flight after the other, until there are enough who wait for the next.
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

// rest counts who waits, and reports whether one more may.
func (s *senders) rest(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle+n > maxIdle {
		return false
	}
	s.idle += n
	return true
}

// done passes an outcome on. The host is free before the outcome is on disk.
func (s *senders) done(o outcome) {
	s.w.hosts.Ended(o.Request, o.Result)
	s.results <- o
}

// send makes one request. It never returns an error: what went wrong is the outcome, and a panic is a failed attempt.
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

// keys opens the secrets that sign: the present one first, and the one before it while a
// rotation has both sign.
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

// readEvents fills in what is sent.
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
