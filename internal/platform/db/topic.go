package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

func (t *topics) wakeAll() {
	t.mu.Lock()
	topics := slices.Collect(maps.Keys(t.subs))
	t.mu.Unlock()
	for _, topic := range topics {
		t.wake(topic)
	}
}

// hear passes PostgreSQL's notifications on to this process's listeners. A lost
// connection is made again; what was missed meanwhile is found by the listeners' polls.
func (d *DB) hear(ctx context.Context) error {
	for again := false; ctx.Err() == nil; again = true {
		if err := d.hearOnce(ctx, again); err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "database notifications interrupted", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (d *DB) hearOnce(ctx context.Context, again bool) error {
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	lively(config)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTime)
		defer cancel()
		conn.Close(bounded)
	}()
	if _, err := conn.Exec(ctx, listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if again {
		d.topics.wakeAll() // what was missed meanwhile is found without waiting for a poll
	}
	for {
		n, err := waitBriefly(ctx, conn)
		switch {
		case err == nil:
			d.topics.wake(n.Payload)
		case ctx.Err() != nil || !pgconn.Timeout(err):
			return err
		default:
			// Nothing came: a connection that is silent because its other end is gone would stay so for ever.
			bounded, cancel := context.WithTimeout(ctx, pingTime)
			_, err := conn.Exec(bounded, listen) // a second time changes nothing (PostgreSQL, LISTEN)
			cancel()
			if err != nil {
				return fmt.Errorf("listen again: %w", err)
			}
		}
	}
}

const listen = "LISTEN slipway"

// hearingCheck is how long the connection that hears notifications may be silent before it is asked for an answer.
const hearingCheck = 3 * time.Second

func waitBriefly(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	ctx, cancel := context.WithTimeout(ctx, hearingCheck)
	defer cancel()
	return conn.WaitForNotification(ctx)
}
