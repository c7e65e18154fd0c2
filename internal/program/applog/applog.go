// Package applog owns what sites' programs print, as far as it is kept, and what the service says of them: it is taken without ever
// holding a program back, written in batches, and read back.
package applog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/id"

	"slipway/internal/platform/db"
)

// Line is one line that a program printed, or that the service says of it.
type Line struct {
	N          int64 // grows with every line of a site
	At         db.Time
	Level      string // debug, info, warn, error: guessed
	Stream     string // stdout, stderr, system
	Process    string // which of the site's processes: web, worker:name, cron:name, release, or the id of a command's operation
	Deployment id.Deployment
	Message    string
}

// What is kept of a site's lines, how many a second are taken, and how many may wait to be
// written for all sites together. A quarter of those may be of one owner.
const (
	keptLines   = 10_000
	keptText    = 16 << 20 // characters of them
	linesPerSec = 500
	lineBurst   = 2_000
	maxWaiting  = 50_000
	waitingMost = 32 << 20 // bytes of them
	lineCost    = 512      // a line counts as one more for every so many bytes
	flushEvery  = 250 * time.Millisecond
)

// Logs collects what programs print and writes it in batches. It is safe for concurrent use.
type Logs struct {
	db  *db.DB
	log *slog.Logger

	mu sync.Mutex // guards what follows
	// share: total the sites that have logged; owner its sites; edge gone with the site
	sites   map[id.Site]*siteLog
	waiting []entry // share: total 50,000 lines and 32 MiB; owner a quarter; edge lines are dropped and counted in the site's log
	bytes   int     // of waiting
	// share: total the owners with lines that wait; owner one entry; edge gone when its lines are written
	of   map[id.Owner]load // of waiting, by owner
	wake chan struct{}
}

// load is how much waits.
type load struct{ lines, bytes int }

type siteLog struct {
	owner   id.Owner // who owns the site; empty while that is not known
	last    int64    // the newest line's number
	tokens  float64
	at      time.Time
	dropped int
	count   int // lines written since the last trim
	text    int // bytes of them
}

type entry struct {
	site  id.Site
	owner id.Owner // or the site, where the owner is not known
	Line
}

// New returns the logs that are kept in a database. It starts nothing: Run writes.
func New(d *db.DB, log *slog.Logger) *Logs {
	return &Logs{db: d, log: log, sites: map[id.Site]*siteLog{}, of: map[id.Owner]load{}, wake: make(chan struct{}, 1)}
}

// Web is the process that answers.
const Web = "web"

// System notes what the service says of the program that answers.
func (l *Logs) System(site id.Site, deployment id.Deployment, text string) {
	l.Note(site, deployment, Web, text)
}

// Note notes what the service says of a process.
func (l *Logs) Note(site id.Site, deployment id.Deployment, process, text string) {
	if site != "" {
		l.Add(site, deployment, process, "system", text)
	}
}

// Owned notes who owns a site: its lines wait in that owner's share.
func (l *Logs) Owned(site id.Site, owner id.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.siteLog(site, time.Now()).owner = owner
}

// siteLog returns the state of a site's log; mu is held.
func (l *Logs) siteLog(site id.Site, now time.Time) *siteLog {
	s := l.sites[site]
	if s == nil {
		s = &siteLog{tokens: lineBurst, at: now}
		l.sites[site] = s
	}
	return s
}

// moment returns the microseconds since 1970 by the clock that all nodes have in common: whoever reads on after a line's number is to see
// the later lines of every node.
func (l *Logs) moment(now time.Time) int64 {
	if l.db == nil || l.db.Single() {
		return now.UnixMicro()
	}
	return int64(l.db.Now())*1000 + now.UnixMicro()%1000
}

// Add notes one line. A site that prints more than its share loses the rest, and its log
// says how many.
func (l *Logs) Add(site id.Site, deployment id.Deployment, process, stream, text string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.siteLog(site, now)
	owner := cmp.Or(s.owner, id.Owner(site))
	held := l.of[owner]
	s.tokens = min(lineBurst, s.tokens+now.Sub(s.at).Seconds()*linesPerSec)
	s.at = now
	if s.tokens < 1 || len(l.waiting) >= maxWaiting || l.bytes >= waitingMost || held.lines >= maxWaiting/4 || held.bytes >= waitingMost/4 {
		s.dropped++
		return
	}
	s.tokens -= 1 + float64(len(text)/lineCost)
	moment := l.moment(now)
	put := func(process, stream, text string) {
		// Microseconds, so that numbers grow over restarts without anybody reading the last.
		s.last = max(s.last+1, moment)
		l.bytes += len(text)
		held.lines, held.bytes = held.lines+1, held.bytes+len(text)
		l.of[owner] = held
		l.waiting = append(l.waiting, entry{
			site,
			owner,
			Line{
				N: s.last, At: db.Time(moment / 1000), Level: levelOf(stream, text), Stream: stream,
				Process: process, Deployment: deployment, Message: text,
			},
		})
	}
	if s.dropped > 0 {
		put(
			Web,
			"system",
			fmt.Sprintf("%d lines were dropped: at most %d a second are stored, long ones count as several", s.dropped, linesPerSec),
		)
		s.dropped = 0
	}
	put(process, stream, text)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// levelOf guesses how serious a line is.
func levelOf(stream, text string) string {
	head := strings.ToLower(text[:min(len(text), 120)])
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(head, word) })
	}
	switch {
	case has("error", "fatal", "uncaught", "panic"):
		return "error"
	case has("warn"):
		return "warn"
	case has("debug"):
		return "debug"
	case stream == "stderr", stream == "system" &&
		(strings.HasPrefix(head, "the application ") || strings.HasPrefix(head, "the process exited") || has(" was answered with 50")):
		return "warn"
	}
	return "info"
}

// Run writes what waits until ctx ends, and once more then.
func (l *Logs) Run(ctx context.Context) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			l.Flush(last)
			return
		case <-tick.C:
			l.Flush(ctx)
		}
	}
}

// Flush writes what waits. What can't be written is lost after the queue is full: a
// program is never held back because the database is away.
func (l *Logs) Flush(ctx context.Context) {
	l.mu.Lock()
	batch := l.waiting
	l.waiting, l.bytes, l.of = nil, 0, map[id.Owner]load{}
	l.mu.Unlock()
	for len(batch) > 0 {
		part := batch[:min(len(batch), 500)]
		if err := l.write(ctx, part); err != nil {
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "application log not written, will be retried", "err", err)
			}
			l.mu.Lock()
			if len(l.waiting)+len(batch) <= maxWaiting {
				l.waiting = append(batch, l.waiting...)
				for _, e := range batch {
					l.bytes += len(e.Message)
					held := l.of[e.owner]
					l.of[e.owner] = load{held.lines + 1, held.bytes + len(e.Message)}
				}
			}
			l.mu.Unlock()
			return
		}
		batch = batch[len(part):]
	}
}

func (l *Logs) write(ctx context.Context, part []entry) error {
	return l.db.Write(ctx, func(tx *db.Tx) error {
		counts := map[id.Site]load{}
		for _, e := range part {
			if _, err := tx.Exec(ctx, `
				INSERT INTO app_logs (site_id, n, at, level, stream, process, deployment_id, message) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
				ON CONFLICT (site_id, n) DO NOTHING`,
				e.site, e.N, e.At, e.Level, e.Stream, e.Process, e.Deployment, e.Message); err != nil {
				return err
			}
			n := counts[e.site]
			counts[e.site] = load{n.lines + 1, n.bytes + len(e.Message)}
		}
		for site, n := range counts {
			tx.Notify(Topic(site))
			if !l.due(site, n) {
				continue
			}
			if _, err := tx.Exec(ctx, `
				DELETE FROM app_logs WHERE site_id = $1 AND n <= (
					SELECT n FROM app_logs WHERE site_id = $1 ORDER BY n DESC LIMIT 1 OFFSET $2)`, site, keptLines); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `
				DELETE FROM app_logs WHERE site_id = $1 AND n <= (
					SELECT MAX(n) FROM (SELECT n, SUM(length(message)) OVER (ORDER BY n DESC) AS upto FROM app_logs WHERE site_id = $1) AS x
					WHERE upto > $2)`, site, keptText); err != nil {
				return err
			}
		}
		return nil
	})
}

// due reports whether so much was written that old lines must go.
func (l *Logs) due(site id.Site, n load) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sites[site]
	if s == nil {
		return true
	}
	s.count, s.text = s.count+n.lines, s.text+n.bytes
	if s.count < keptLines/10 && s.text < keptText/8 {
		return false
	}
	s.count, s.text = 0, 0
	return true
}

// Topic is notified after lines of a site were written.
func Topic(site id.Site) string { return "app-log/" + string(site) }

// Filter narrows a site's log. Zero fields don't.
type Filter struct {
	After      int64 // only lines with a greater number, the first of them; 0: the newest lines; less: the oldest
	Before     int64 // only lines with a lesser number
	Since      db.Time
	Stream     string
	Level      string
	Process    string
	Deployment id.Deployment
	Search     string // text that the message holds, in any case
	Limit      int    // 1 to 1,000. Optional: 0 means 100.
	Flush      bool   // writes what waits first
}

// Read returns lines of a site, the oldest first. The caller knows that the site is its
// own.
func (l *Logs) Read(ctx context.Context, site id.Site, f Filter) ([]Line, error) {
	if f.Limit < 1 || f.Limit > 1000 {
		f.Limit = 100
	}
	if f.Flush {
		l.Flush(ctx)
	}
	order := "DESC"
	if f.After != 0 {
		order = "ASC"
	}
	rows, err := l.db.Query(ctx, `
		SELECT n, at, level, stream, process, deployment_id, message FROM (
			SELECT * FROM app_logs
			WHERE site_id = $1 AND n > $2 AND at >= $3 AND ($4 = '' OR stream = $4) AND ($5 = '' OR lower(message) LIKE lower($5) ESCAPE '\')
			AND ($6 = '' OR deployment_id = $6) AND ($7 = '' OR process = $7) AND ($8 = '' OR level = $8) AND (CAST($9 AS BIGINT) = 0 OR n < $9)
			ORDER BY n `+order+` LIMIT $10) AS lines
		ORDER BY n`, site, f.After, f.Since, f.Stream, pattern(f.Search), f.Deployment, f.Process, f.Level, f.Before, f.Limit)
	list, err := db.Collect(rows, err, func(s db.Scanner) (x Line, err error) {
		return x, s.Scan(&x.N, &x.At, &x.Level, &x.Stream, &x.Process, &x.Deployment, &x.Message)
	})
	if err != nil {
		return nil, fmt.Errorf("read application log: %w", err)
	}
	return list, nil
}

// pattern is a search text for LIKE, in its own case: what the database knows of cases holds
// for the text and the lines alike.
func pattern(text string) string {
	if text == "" {
		return ""
	}
	return "%" + strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text) + "%"
}

// PurgeTx forgets what a deleted site's programs printed.
func (l *Logs) PurgeTx(ctx context.Context, tx *db.Tx, site id.Site) error {
	if _, err := tx.Exec(ctx, `DELETE FROM app_logs WHERE site_id = $1`, site); err != nil {
		return fmt.Errorf("forget application log: %w", err)
	}
	tx.AfterCommit(func() { l.forget(site) })
	return nil
}

// Waiting returns the lines that wait to be written.
func (l *Logs) Waiting() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Line, len(l.waiting))
	for i, e := range l.waiting {
		list[i] = e.Line
	}
	return list
}

// forget drops what is remembered of a site's share.
func (l *Logs) forget(site id.Site) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sites, site)
}
