package db

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// topics wakes goroutines of this process that wait for a change.
type topics struct {
	mu sync.Mutex // guards subs
	// share: total what waits for changes: workers, live pages and streams; owner the streams that a user may have; edge gone with the stream
	subs map[string]map[chan struct{}]bool
}

// Listen returns a channel that receives after transactions that Notify the topic.
// Several notifications may arrive as one. Call stop when done.
func (d *DB) Listen(topic string) (wake <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	t := &d.topics
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subs == nil {
		t.subs = map[string]map[chan struct{}]bool{}
	}
	if t.subs[topic] == nil {
		t.subs[topic] = map[chan struct{}]bool{}
	}
	t.subs[topic][ch] = true
	return ch, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.subs[topic], ch)
		if len(t.subs[topic]) == 0 {
			delete(t.subs, topic)
		}
	}
}

func (t *topics) wake(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ch := range t.subs[topic] {
		select {
		case ch <- struct{}{}:
		default: // already woken
		}
	}
}

// hear passes PostgreSQL's notifications on to this process's listeners. A lost
// connection is made again; what was missed meanwhile is found by the listeners' polls.
func (d *DB) hear(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := d.hearOnce(ctx); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "database notifications interrupted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (d *DB) hearOnce(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN slipway"); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		d.topics.wake(n.Payload)
	}
}
