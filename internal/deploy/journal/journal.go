// Package journal owns what a deployment reports while it runs: the lines of its log, its
// stages, progress and remaining time; and reading the log afterwards.
//
// New lines are written in groups, and in one transaction with the caller's own change if
// both belong together. The deployment's row belongs to its service, which is told what
// to write.
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

// Bounds of one deployment's log. What is over them is dropped, and the log says so.
const (
	maxLine  = 8 << 10
	maxLog   = 10 << 20
	maxLines = 100_000
)

// flushEvery is how long lines wait to be written together: short beside what a person
// notices, long beside a commit.
const flushEvery = 40 * time.Millisecond

// ErrFenced says that a worker's token is no longer the deployment's.
var ErrFenced = errors.New("another worker runs this deployment, or it has ended")

// Stage is one step of a deployment.
type Stage struct {
	Name        string  `json:"name"`
	Status      string  `json:"status"` // pending, running, success, failed, skipped
	StartedAt   db.Time `json:"startedAt"`
	CompletedAt db.Time `json:"completedAt"`
}

// State says where a deployment stands.
type State struct {
	Status string
	Stages string // JSON
	Place  int    // in the queue for a build slot; 0 outside of it
}

// Config holds what a Journal needs.
type Config struct {
	DB         *db.DB
	Log        *slog.Logger
	Deployment id.Deployment
	Status     string // with which it begins
	// Save writes where the deployment stands; ErrFenced ends the journal.
	Save func(ctx context.Context, tx *db.Tx, s State) error
}

// Journal collects what one run reports: log lines, stages and status, written to the
// database in groups and, at the end, in the transaction that ends the deployment.
type Journal struct {
	c Config

	writing sync.Mutex // held from a transaction's first statement until p knows of its commit
	mu      sync.Mutex // guards what follows
	lines   []Line     // not written yet
	written int64      // lines that are in the database
	unsure  bool       // the last transaction failed, and may have been committed all the same
	bytes   int
	full    bool
	status  string
	stages  []Stage
	stage   string
	place   int // in the queue for a build slot; 0 outside of it
	dirty   bool
	wake    chan struct{}
}

// Open returns the Journal of one run. After a crash the log goes on where it stopped, with
// the stages of this attempt.
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

// Line adds a line to the log, with its terminal colors where it has some.
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

// Clip makes a line fit the log and the database: valid UTF-8, no NUL, bounded.
func Clip(s string) string {
	if len(s) > maxLine {
		s = s[:maxLine] + " …"
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "�"), "\x00", "")
}

// touch marks that there is something to write. The caller holds mu.
func (p *Journal) touch() {
	p.dirty = true
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Enter ends the running stage well and starts the next.
func (p *Journal) Enter(name, status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := db.Now()
	p.leave("success", now)
	p.stage, p.status, p.place = name, status, 0
	*stage(&p.stages, name) = Stage{Name: name, Status: "running", StartedAt: now}
	p.touch()
}

// Queued notes the place in the queue for a build slot, and reports whether it is the
// first one.
func (p *Journal) Queued(place int) (first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	first = p.place == 0
	p.place = place
	p.touch()
	return first
}

// Skip notes a stage that this deployment has no need of.
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

// End closes the last stage.
func (p *Journal) End(status string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(status, db.Now())
	p.dirty = true
}

// Commit writes what is new, and what fn adds, in one transaction. One commit goes at a
// time: lines are numbered by what is known to be written.
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

// writeTx writes the new lines, the stages and the status, and says how many lines it
// wrote. A worker whose token is no longer the deployment's gets ErrFenced.
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
		more := min(max(there-from, 0), int64(len(lines))) // fewer than before where somebody forgot the log meanwhile
		rest, from = lines[more:], from+more
	}
	return len(lines), AppendTx(ctx, tx, p.c.Deployment, from, rest)
}

// Flush writes what is new now.
func (p *Journal) Flush(ctx context.Context) error { return p.Commit(ctx, nil) }

// Run flushes whenever there is something new, until ctx ends. A worker that finds
// itself fenced calls lost.
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
		case <-time.After(flushEvery): // lines come in bursts
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

// stage returns the stage of that name, added when it is new.
func stage(list *[]Stage, name string) *Stage {
	i := slices.IndexFunc(*list, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		*list = append(*list, Stage{Name: name, Status: "pending"})
		i = len(*list) - 1
	}
	return &(*list)[i]
}
