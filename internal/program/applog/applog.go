// Package applog owns what sites' programs print, as far as it is kept, and what the service says of them: it is taken without ever
// holding a program back, written in batches, and read back.
package applog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
	linesPerSec = 500      // also how many of the newest lines of a flood are kept
	lineBurst   = 2_000    // also how far the end of a flood may go beyond the share
	leastTail   = 50       // of the newest lines of a flood are kept in any case
	maxWaiting  = 50_000
	waitingMost = 32 << 20 // bytes of them
	lineCost    = 512      // a line counts as one more for every so many bytes
	flushEvery  = 250 * time.Millisecond
	tailEvery   = time.Second // how long a flood goes on before its newest lines are written
)

// Logs collects what programs print and writes it in batches. It is safe for concurrent use.
type Logs struct {
	db  *db.DB
	log *slog.Logger

	mu sync.Mutex // guards what follows
	// share: total the sites that have logged; owner its sites; edge gone with the site
	sites map[id.Site]*siteLog
	// share: total 50,000 lines and 32 MiB with the ends of floods; owner a quarter; edge lines are dropped and counted in the site's log
	waiting []entry
	held    load // what waits and the ends of floods
	// share: total the owners with lines that wait; owner one entry; edge gone when its lines are written
	of map[id.Owner]load // of held, by owner
}

// load is how much waits.
type load struct{ lines, bytes int }

type siteLog struct {
	owner  id.Owner // who owns the site; empty while that is not known
	last   int64    // the newest line's number
	tokens float64
	at     time.Time
	count  int // lines written since the last trim
	text   int // bytes of them

	// A flood begins with the first line beyond the site's share. Its newest lines are kept until it ends, or for a second: those before
	// a crash say why.
	dropped int     // lines of it that are gone, all before the tail
	tail    []entry // the newest lines, without their numbers
	cost    float64 // of the tail, linesPerSec at most
	since   time.Time
	idle    bool // no line came since the last look
	settled time.Time
}

type entry struct {
	site  id.Site
	owner id.Owner // or the site, where the owner is not known
	Line
}

// New returns the logs that are kept in a database. It starts nothing: Run writes.
func New(d *db.DB, log *slog.Logger) *Logs {
	return &Logs{db: d, log: log, sites: map[id.Site]*siteLog{}, of: map[id.Owner]load{}}
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

// Add notes one line. Of what a site prints beyond its share, the newest lines are kept, and its log says how many are missing before
// them. What the service says is beyond no share, and ends a flood: it is about what was printed before.
func (l *Logs) Add(site id.Site, deployment id.Deployment, process, stream, text string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.siteLog(site, now)
	s.tokens = min(lineBurst, s.tokens+now.Sub(s.at).Seconds()*linesPerSec)
	s.at = now
	e := entry{site, cmp.Or(s.owner, id.Owner(site)), Line{
		At: db.Time(l.moment(now) / 1000), Level: levelOf(stream, text), Stream: stream, Process: process, Deployment: deployment, Message: text,
	}}
	switch {
	case stream == "system" && !l.full(e.owner):
		l.settle(s, now)
		l.hold(e, 1)
		l.put(s, e, now)
	case s.flooding() || s.tokens < 1 || l.full(e.owner):
		l.flood(s, e, now)
	default:
		s.tokens -= e.cost()
		l.hold(e, 1)
		l.put(s, e, now)
	}
}

// cost is how many lines a line counts as.
func (e *entry) cost() float64 { return 1 + float64(len(e.Message)/lineCost) }

// flooding reports whether lines of a site are held back; mu is held, as for what follows.
func (s *siteLog) flooding() bool { return s.dropped > 0 || len(s.tail) > 0 }

// full reports whether no further line of an owner may wait.
func (l *Logs) full(owner id.Owner) bool {
	own := l.of[owner]
	return l.held.lines >= maxWaiting || l.held.bytes >= waitingMost || own.lines >= maxWaiting/4 || own.bytes >= waitingMost/4
}

// hold counts a line among those that are kept in memory, or no longer.
func (l *Logs) hold(e entry, n int) {
	l.held = load{l.held.lines + n, l.held.bytes + n*len(e.Message)}
	own := l.of[e.owner]
	if own = (load{own.lines + n, own.bytes + n*len(e.Message)}); own.lines == 0 {
		delete(l.of, e.owner)
		return
	}
	l.of[e.owner] = own
}

// put gives a line its number and lets it wait.
func (l *Logs) put(s *siteLog, e entry, now time.Time) {
	// Microseconds, so that numbers grow over restarts without anybody reading the last.
	s.last = max(s.last+1, l.moment(now))
	e.N = s.last
	l.waiting = append(l.waiting, e)
}

// flood adds a line to the newest ones of a flood.
func (l *Logs) flood(s *siteLog, e entry, now time.Time) {
	if !s.flooding() {
		s.since = now
	}
	s.idle = false
	s.tail, s.cost = append(s.tail, e), s.cost+e.cost()
	l.hold(e, 1)
	for s.cost > linesPerSec || len(s.tail) > 0 && l.full(e.owner) {
		l.drop(s)
	}
}

// drop gives up the oldest line of a flood's newest ones.
func (l *Logs) drop(s *siteLog) {
	l.hold(s.tail[0], -1)
	s.cost -= s.tail[0].cost()
	s.tail[0] = entry{}
	s.tail = s.tail[1:]
	s.dropped++
}

// settle lets the newest lines of a flood wait to be written, after a line that says how many are missing before them.
func (l *Logs) settle(s *siteLog, now time.Time) {
	if !s.flooding() {
		return
	}
	budget := s.tokens + lineBurst
	if now.Sub(s.settled) >= flushEvery {
		budget = max(budget, leastTail)
	}
	for len(s.tail) > 0 && s.cost > budget {
		l.drop(s)
	}
	if len(s.tail) == 0 {
		return // the next line comes too soon, or memory is full: it is counted
	}
	if first := s.tail[0]; s.dropped > 0 {
		first.Level, first.Stream = "warn", "system"
		first.Message = fmt.Sprintf("%d lines were dropped: at most %d a second are stored, long ones count as several", s.dropped, linesPerSec)
		l.hold(first, 1)
		l.put(s, first, now)
	}
	for _, e := range s.tail {
		l.put(s, e, now)
	}
	s.tokens -= s.cost
	s.tail, s.cost, s.dropped, s.settled, s.since = nil, 0, 0, now, now
}

// settleAll settles the floods that have ended, or go on for long. With force it settles all.
func (l *Logs) settleAll(force bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sites {
		if force || s.idle || now.Sub(s.since) >= tailEvery {
			l.settle(s, now)
		}
		s.idle = true
	}
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
			l.settleAll(false)
			l.flush(ctx)
		}
	}
}

// Flush writes what waits, and the ends of floods.
func (l *Logs) Flush(ctx context.Context) {
	l.settleAll(true)
	l.flush(ctx)
}

// flush writes what waits. What can't be written is lost after the queue is full: a
// program is never held back because the database is away.
func (l *Logs) flush(ctx context.Context) {
	l.mu.Lock()
	batch := l.waiting
	l.waiting = nil
	for _, e := range batch {
		l.hold(e, -1)
	}
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
					l.hold(e, 1)
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
		l.mu.Lock()
		if s, now := l.sites[site], time.Now(); s != nil {
			l.settle(s, now)
		}
		l.mu.Unlock()
		l.flush(ctx)
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
	if s := l.sites[site]; s != nil {
		for len(s.tail) > 0 {
			l.drop(s)
		}
	}
	delete(l.sites, site)
}
