package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"slipway/internal/db"
)

// Bounds of one deployment's log. What is over them is dropped, and the log says so.
const (
	maxLine  = 8 << 10
	maxLog   = 10 << 20
	maxLines = 100_000
)

// flushEvery is how long lines wait to be written together: short beside what a person
// notices, long beside a commit.
const flushEvery = 40 * time.Millisecond

// errFenced says that this worker's token is no longer the deployment's.
var errFenced = errors.New("another worker runs this deployment, or it has ended")

// progress collects what one run reports: log lines, stages and status, written to the
// database in groups and, at the end, in the transaction that ends the deployment.
type progress struct {
	d       *Deployments
	id      ID
	attempt int64
	clock   *clock // of the deployment's time

	writing sync.Mutex // held from a transaction's first statement until p knows of its commit
	mu      sync.Mutex // guards what follows
	lines   []Line     // not written yet
	written int64      // lines that are in the database
	bytes   int
	full    bool
	status  Status
	stages  []Stage
	stage   string
	place   int // in the queue for a build slot; 0 outside of it
	dirty   bool
	wake    chan struct{}
}

func (d *Deployments) progress(ctx context.Context, x Deployment, attempt int64) (*progress, error) {
	p := &progress{d: d, id: x.ID, attempt: attempt, status: Building, wake: make(chan struct{}, 1)}
	// After a crash the log goes on where it stopped, with the stages of this attempt.
	err := d.c.DB.QueryRow(ctx, `SELECT COALESCE(MAX(n), 0) FROM deployment_logs WHERE deployment_id = $1`, x.ID).Scan(&p.written)
	if err != nil {
		return nil, fmt.Errorf("find end of log: %w", err)
	}
	return p, nil
}

// Printf adds a line to the log.
func (p *progress) Printf(level, format string, args ...any) {
	p.line(level, fmt.Sprintf(format, args...), "")
}

func (p *progress) line(level, message, raw string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return
	}
	message, raw = clip(message), clip(raw)
	p.bytes += len(message) + len(raw)
	if p.bytes > maxLog || p.written+int64(len(p.lines)) >= maxLines {
		p.full = true
		level, message, raw = "warn", "The log is full (10 MiB or 100,000 lines); the rest is not stored", ""
	}
	p.lines = append(p.lines, Line{At: db.Now(), Level: level, Stage: p.stage, Message: message, Raw: raw})
	p.touch()
}

// clip makes a line fit the log and the database: valid UTF-8, no NUL, bounded.
func clip(s string) string {
	if len(s) > maxLine {
		s = s[:maxLine] + " …"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "")
}

// touch marks that there is something to write. The caller holds mu.
func (p *progress) touch() {
	p.dirty = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// enter ends the running stage well and starts the next.
func (p *progress) enter(name string, status Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := db.Now()
	p.leave("success", now)
	p.stage, p.status, p.place = name, status, 0
	*stage(&p.stages, name) = Stage{Name: name, Status: "running", StartedAt: now}
	p.touch()
}

// queued notes the place in the queue for a build slot, and reports whether it is the
// first one.
func (p *progress) queued(place int) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = p.place == 0
	p.place = place
	p.touch()
	return first
}

// skip notes a stage that this deployment has no need of.
func (p *progress) skip(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stage(&p.stages, name).Status = "skipped"
}

func (p *progress) leave(status string, at db.Time) {
	if p.stage == "" {
		return
	}
	s := stage(&p.stages, p.stage)
	s.Status, s.CompletedAt = status, at
}

// end closes the last stage.
func (p *progress) end(status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(status, db.Now())
	p.dirty = true
}

// commit writes what is new, and what fn adds, in one transaction. One commit goes at a
// time: lines are numbered by what is known to be written.
func (p *progress) commit(ctx context.Context, fn func(tx *db.Tx) error) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	var lines int
	err := p.d.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if lines, err = p.writeTx(ctx, tx); err != nil || fn == nil {
			return err
		}
		return fn(tx)
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = p.lines[lines:]
	p.written += int64(lines)
	return nil
}

// writeTx writes the new lines, the stages and the status, and says how many lines it
// wrote. A worker whose token is no longer the deployment's gets errFenced.
func (p *progress) writeTx(ctx context.Context, tx *db.Tx) (int, error) {
	p.mu.Lock()
	lines, status, from, place := p.lines, p.status, p.written, p.place
	stages, err := json.Marshal(p.stages)
	p.dirty = false
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n, err := tx.Exec(ctx, `
		UPDATE deployments SET status = $3, stages = $4, place = $5 WHERE id = $1 AND attempt = $2 AND status IN `+open,
		p.id, p.attempt, status, string(stages), place)
	if err != nil {
		return 0, fmt.Errorf("write progress: %w", err)
	}
	if n == 0 {
		return 0, errFenced
	}
	return len(lines), appendLines(ctx, tx, p.id, from, lines)
}

// flush writes what is new now.
func (p *progress) flush(ctx context.Context) error { return p.commit(ctx, nil) }

// run flushes whenever there is something new, until ctx ends. A worker that finds
// itself fenced calls lost.
func (p *progress) run(ctx context.Context, lost func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(flushEvery): // lines come in bursts
		}
		p.mu.Lock()
		dirty := p.dirty
		p.mu.Unlock()
		if !dirty {
			continue
		}
		switch err := p.flush(ctx); {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, errFenced):
			lost(err)
			return
		default:
			p.d.c.Log.WarnContext(ctx, "progress not written", "deployment", p.id, "err", err)
			p.mu.Lock()
			p.touch()
			p.mu.Unlock()
		}
	}
}
