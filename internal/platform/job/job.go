// Package job owns work that must happen: it is written in the transaction that asks
// for it, done at least once, and survives crashes.
//
// A job is taken with a lease and a fencing token (its attempt); a worker that lost
// its lease cannot write the job's end over its successor's. On SQLite one process
// serves, so after a restart everything it held is ready again at once; on PostgreSQL
// the lease has to end first, which takes at most 20 s. While the database takes no writes, an
// end waits; one that is lost all the same means that the job is done again. A worker leases only the kinds
// that it has handlers for: during an upgrade, jobs of a new kind wait for the first node
// that knows them, and Unknown reports those that no running node knows. Jobs of one
// group run one at a time and in order, and queues are fair over shares. The package
// never knows what a job does.
//
// Leases and Loop are the parts that a queue of another package needs when its
// work is more than a job: a leased row kept, places filled, the wait after a failure.
package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"slipway/internal/platform/db"
)

// Args holds the arguments of a job, stored as JSON. Kind names the job for ever: a renamed kind
// orphans those already enqueued.
type Args interface{ Kind() string }

// Options say how a job is queued. All are optional.
type Options struct {
	Queue  string  // "" means "default"
	Unique string  // at most one unfinished job has this key; a second is not enqueued
	Group  string  // at most one job of the group runs at a time, in the order of enqueueing
	Share  string  // leases alternate over shares, such as users, and none runs more than half of a queue's; "" is the service's own
	At     db.Time // not before this moment
}

// Enqueue writes the job in the caller's transaction and wakes a worker after its
// commit. It reports whether the job is new, which only Unique can prevent.
func Enqueue(ctx context.Context, tx *db.Tx, a Args, o Options) (bool, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("enqueue %s: %w", a.Kind(), err)
	}
	now := tx.Now()
	queue := cmp.Or(o.Queue, "default")
	n, err := tx.Exec(ctx, `
		INSERT INTO jobs (id, kind, queue, args, uniq, grp, share, state, attempt, failures, run_at, lease_until, canceled, error, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, 'ready', 0, 0, $8, 0, FALSE, '', $9)
		ON CONFLICT (uniq) WHERE uniq IS NOT NULL AND state IN ('ready', 'running') DO NOTHING`,
		db.NewID("job"), a.Kind(), queue, string(text), null(o.Unique), null(o.Group), o.Share, max(o.At, now), now)
	if err != nil {
		return false, fmt.Errorf("enqueue %s: %w", a.Kind(), err)
	}
	tx.Notify(topic(queue))
	return n == 1, nil
}

// Cancel cancels the job with this Unique key: one that waits is deleted in the
// caller's transaction, one that runs has its context ended (cause ErrCanceled) after
// the commit, wherever it runs. It reports whether a job was running.
func Cancel(ctx context.Context, tx *db.Tx, unique string) (running bool, err error) {
	n, err := tx.Exec(ctx, `DELETE FROM jobs WHERE `+ofKey+` AND state = 'ready'`, unique)
	if err != nil {
		return false, fmt.Errorf("cancel job: %w", err)
	}
	if n > 0 { // at most one unfinished job has the key
		return false, nil
	}
	n, err = tx.Exec(ctx, `UPDATE jobs SET canceled = TRUE WHERE `+ofKey+` AND state = 'running'`, unique)
	if err != nil {
		return false, fmt.Errorf("cancel job: %w", err)
	}
	tx.Notify(topicCancel)
	return n > 0, nil
}

// Unfinished reports whether a job waits or runs whose Unique key begins so. A prefix ends with
// a slash.
func Unfinished(ctx context.Context, tx *db.Tx, prefix string) (bool, error) {
	end := prefix[:len(prefix)-1] + "0" // the byte after the slash
	var n int
	err := tx.QueryRow(
		ctx,
		`SELECT count(*) FROM jobs WHERE uniq >= $1 AND uniq < $2 AND state IN ('ready', 'running')`,
		prefix,
		end,
	).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look for jobs: %w", err)
	}
	return n > 0, nil
}

// ofKey is the condition of the unfinished job with a Unique key as its index has it: without
// the second part SQLite reads every job that waits.
const ofKey = `uniq = $1 AND state IN ('ready', 'running')`

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func topic(queue string) string { return "job/" + queue }

const topicCancel = "job.cancel"

// The causes with which a handler's context may end besides its own deadline.
var (
	ErrCanceled = errors.New("job canceled")
	ErrStopping = errors.New("the service is stopping")
	ErrLost     = errors.New("job lease lost to another worker")
)

// Later is returned by a handler to be called again after d; it is not a failure.
func Later(d time.Duration) error { return later(d) }

type later time.Duration

func (l later) Error() string { return "again in " + time.Duration(l).String() }

// On is returned by a handler that has begun nothing, and whose work belongs to another node: the job goes there, and that is no
// failure. Once that node's lease has ended, any node may run it again, to find out what to do.
func On(node string) error { return &elsewhere{node: node} }

// NotYet is Later of a handler that has begun nothing.
func NotYet(d time.Duration) error { return &elsewhere{after: d} }

type elsewhere struct {
	node  string
	after time.Duration
}

func (e *elsewhere) Error() string {
	if e.node == "" {
		return "again in " + e.after.String()
	}
	return "it belongs to node " + e.node
}

// Policy bounds one kind of job. All fields are optional.
type Policy struct {
	Timeout  time.Duration                                           // per call. 0 means 5 minutes.
	Attempts int                                                     // errors and crashes before it is given up. 0 means 10.
	Backoff  func(failures int) time.Duration                        // nil means 1s, doubling up to 5 minutes
	GivenUp  func(ctx context.Context, args []byte, why error) error // says so where users look. It may be called again.
	// what the kind was called before: such jobs may be waiting, or come from nodes of an earlier version
	Formerly string
}

// Config holds what Jobs needs.
type Config struct {
	DB     *db.DB
	Log    *slog.Logger
	Queues map[string]int // how many jobs of each queue run at once in this process
	Node   string         // the name of this node in On. Optional: empty gets none of those jobs.

	Lease time.Duration // Optional: 0 means LeaseTime.
	Poll  time.Duration // the safety net under wake-ups. Optional: 0 means 1s.
	Drain time.Duration // how long running jobs may go on once Run's context ended. Optional: 0 means 10s.
}

// Jobs does jobs. Register handlers, then Run.
type Jobs struct {
	c        Config
	node     string // this process, in job_kinds
	handlers map[string]handler
	leases   *Leases
}

type handler struct {
	policy Policy
	call   func(ctx context.Context, c *leased) error
}

// leased is a job this process holds.
type leased struct {
	id, kind, queue string
	args            []byte
	attempt         int64
	failures        int
}

// New returns Jobs that know no handler yet.
func New(c Config) *Jobs {
	c.Lease = cmp.Or(c.Lease, LeaseTime)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	return &Jobs{
		c: c, node: db.NewID("node"), handlers: map[string]handler{},
		leases: &Leases{DB: c.DB, Log: c.Log, For: c.Lease, Renew: renew},
	}
}

// Handle registers the handler of A's kind, before Run. It must be safe to call again for the same
// args: a crash at any line runs the job once more. attempt grows with each call and is
// the token that fences a handler's own writes.
func Handle[A Args](j *Jobs, p Policy, fn func(ctx context.Context, a A, attempt int64) error) {
	var zero A
	p.Timeout = cmp.Or(p.Timeout, 5*time.Minute)
	p.Attempts = cmp.Or(p.Attempts, 10)
	if p.Backoff == nil {
		p.Backoff = doubling
	}
	h := handler{policy: p, call: func(ctx context.Context, c *leased) error {
		var a A
		if err := json.Unmarshal(c.args, &a); err != nil {
			return fmt.Errorf("read job arguments: %w", err)
		}
		return fn(ctx, a, c.attempt)
	}}
	j.handlers[zero.Kind()] = h
	if p.Formerly != "" {
		j.handlers[p.Formerly] = h
	}
}
