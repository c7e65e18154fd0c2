// Package journal owns what a deployment reports while it runs: log lines, stages, progress and remaining time. It also
// reads logs.
//
// Lines are written in groups. A change of the caller's that belongs to them is written in the same transaction. The
// caller owns the deployment's row and writes it in [Config.Save].
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// Limits of one deployment's log. Lines beyond them are dropped, and the log says so.
const (
	maxLine  = 8 << 10
	maxLog   = 10 << 20
	maxLines = 100_000
)

// flushEvery is how long lines are buffered: short enough that users don't notice, long compared to a commit.
const flushEvery = 40 * time.Millisecond

// ErrFenced means that another worker has the deployment now, or that it has ended.
var ErrFenced = errors.New("another worker runs this deployment, or it has ended")

// Stage is one step of a deployment.
type Stage struct {
	Name        string  `json:"name"`
	Status      string  `json:"status"` // pending, running, success, failed, skipped
	StartedAt   db.Time `json:"startedAt"`
	CompletedAt db.Time `json:"completedAt"`
}

// State is the state of a deployment.
type State struct {
	Status string
	Stages string // JSON
	Place  int    // in the queue for a build slot; 0 if not queued
}

// Config holds what a Journal needs.
type Config struct {
	DB         *db.DB
	Log        *slog.Logger
	Deployment id.Deployment
	Status     string // initial status
	// Save writes the deployment's state. Its ErrFenced ends the journal.
	Save func(ctx context.Context, tx *db.Tx, s State) error
}

// Journal collects the log lines, stages and status of one run. It writes them in groups and, at the end, in the
// transaction that ends the deployment.
type Journal struct {
	c Config

	writing sync.Mutex // held from a transaction's first statement until its outcome is recorded
	mu      sync.Mutex // guards the following fields
	lines   []Line     // not written yet
	written int64      // lines in the database
	unsure  bool       // the last transaction failed, but may have been committed
	bytes   int
	full    bool
	status  string
	stages  []Stage
	stage   string
	place   int // in the queue for a build slot; 0 if not queued
	dirty   bool
	wake    chan struct{}
}

// Open returns the Journal of one run. After a crash it continues the log, and begins the stages again.
func Open(ctx context.Context, c Config) (*Journal, error) {
	p := &Journal{c: c, status: c.Status, wake: make(chan struct{}, 1)}
	var err error
	p.written, err = last(ctx, c.DB, c.Deployment)
	return p, err
}

// Printf adds a line to the log.
func (p *Journal) Printf(level, format string, args ...any) {
	p.Line(level, fmt.Sprintf(format, args...), "")
}

// Line adds a line to the log. raw is the line with terminal colors, or empty.
func (p *Journal) Line(level, message, raw string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full {
		return
	}
	message, raw = Clip(message), Clip(raw)
	p.bytes += len(message) + len(raw)
	if p.bytes > maxLog || p.written+int64(len(p.lines)) >= maxLines {
		p.full = true
		level, message, raw = "warn", "The log is full (10 MiB or 100,000 lines); the rest is not stored", ""
	}
	p.lines = append(p.lines, Line{At: db.Now(), Level: level, Stage: p.stage, Message: message, Raw: raw})
	p.touch()
}

// Clip makes a line valid for the log and the database: UTF-8, no NUL, bounded.
func Clip(s string) string {
	if len(s) > maxLine {
		s = s[:maxLine] + " …"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "")
}

// touch wakes Run. The caller holds mu.
func (p *Journal) touch() {
	p.dirty = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Enter ends the running stage as successful and starts the next.
func (p *Journal) Enter(name, status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := db.Now()
	p.leave("success", now)
	p.stage, p.status, p.place = name, status, 0
	*stage(&p.stages, name) = Stage{Name: name, Status: "running", StartedAt: now}
	p.touch()
}

// Queued records the place in the queue for a build slot, and reports whether it is the first record of one.
func (p *Journal) Queued(place int) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = p.place == 0
	p.place = place
	p.touch()
	return first
}

// Skip records that this deployment doesn't need a stage.
func (p *Journal) Skip(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stage(&p.stages, name).Status = "skipped"
}

func (p *Journal) leave(status string, at db.Time) {
	if p.stage == "" {
		return
	}
	s := stage(&p.stages, p.stage)
	s.Status, s.CompletedAt = status, at
}

// End ends the last stage with a status.
func (p *Journal) End(status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(status, db.Now())
	p.dirty = true
}

// Commit writes new lines and fn's changes in one transaction. Commits don't overlap, because lines are numbered from
// the count of written ones.
func (p *Journal) Commit(ctx context.Context, fn func(tx *db.Tx) error) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	var lines int
	err := p.c.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if lines, err = p.writeTx(ctx, tx); err != nil || fn == nil {
			return err
		}
		return fn(tx)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsure = err != nil
	if p.unsure {
		return err
	}
	p.lines = p.lines[lines:]
	p.written += int64(lines)
	return nil
}

// writeTx writes the new lines, the stages and the status, and returns how many lines it wrote. It returns ErrFenced if
// another worker has the deployment.
func (p *Journal) writeTx(ctx context.Context, tx *db.Tx) (int, error) {
	p.mu.Lock()
	lines, status, from, place, unsure := p.lines, p.status, p.written, p.place, p.unsure
	stages, err := json.Marshal(p.stages)
	p.dirty = false
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := p.c.Save(ctx, tx, State{status, string(stages), place}); err != nil {
		return 0, err
	}
	rest := lines
	if unsure {
		there, err := last(ctx, tx, p.c.Deployment)
		if err != nil {
			return 0, err
		}
		more := min(max(there-from, 0), int64(len(lines))) // fewer if the log was deleted meanwhile
		rest, from = lines[more:], from+more
	}
	return len(lines), AppendTx(ctx, tx, p.c.Deployment, from, rest)
}

// Flush writes new lines now.
func (p *Journal) Flush(ctx context.Context) error { return p.Commit(ctx, nil) }

// Run flushes new lines until ctx ends. If another worker took over, it calls lost.
func (p *Journal) Run(ctx context.Context, lost func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(flushEvery): // collect the lines of a burst
		}
		p.mu.Lock()
		dirty := p.dirty
		p.mu.Unlock()
		if !dirty {
			continue
		}
		switch err := p.Flush(ctx); {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, ErrFenced):
			lost(err)
			return
		default:
			p.c.Log.WarnContext(ctx, "progress not written", "deployment", p.c.Deployment, "err", err)
			p.mu.Lock()
			p.touch()
			p.mu.Unlock()
		}
	}
}

// stage returns the stage with that name, and adds it if it is missing.
func stage(list *[]Stage, name string) *Stage {
	i := slices.IndexFunc(*list, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		*list = append(*list, Stage{Name: name, Status: "pending"})
		i = len(*list) - 1
	}
	return &(*list)[i]
}
