// Package buildlog owns the output of builds: it turns the bytes of an untrusted process into log lines that are safe
// to show, and the lines of a failed build into a likely cause.
//
// A stream passes three steps. The terminal step keeps text and colors and drops all other control sequences, so that a
// line can't move a reader's cursor or hide its content. The redaction step replaces the values of secrets, and their
// usual encodings, by [secret], even if they are split between writes. The line step cuts, classifies and counts lines.
// Memory is bounded by the longest line, the secrets and a few hundred remembered lines.
//
// Redaction protects people who print their environment by mistake. It is not a security boundary: a malicious build
// can always encode a secret in another way. The package stores nothing, and knows nothing of deployments.
package buildlog

import (
	"cmp"
	"fmt"
	"sync"
	"time"
)

// Line is one line of output. Both texts are valid UTF-8.
type Line struct {
	Level   string // debug, info, warn or error
	Message string // plain text, without control characters except tab
	Raw     string // Message with its SGR colors (ECMA-48 8.3.117); "" if it has none
}

// Config holds the limits and the receiver of a log.
type Config struct {
	// Line receives every line in order, from one goroutine at a time. A lock is held, so it must not call the Log.
	Line func(Line)
	// Secrets lists the values to hide. Values shorter than 6 bytes are ignored, and lines shorter than 8 bytes of
	// values with several lines.
	Secrets  []string
	MaxLine  int           // bytes of Message; longer lines are split. Optional: 0 means 8 KiB, at least 64.
	MaxLines int           // lines passed to Line; Excerpt and Cause see all. Optional: 0 means 100,000.
	Rate     int           // lines passed to Line per second. Optional: 0 means 10,000.
	Silence  time.Duration // after which an unfinished line, such as a prompt, is passed to Line. Optional: 0 means 15 s.
	Progress time.Duration // interval for passing on the states of a line that rewrites itself. Optional: 0 means 2 s.
}

// Log turns the output of one build into lines. It is safe for concurrent use, and holds no resources after Close.
type Log struct {
	c      Config
	hide   *automaton
	out    stream
	recent memory

	mu      sync.Mutex // guards the following fields, out and recent
	closed  bool
	lines   int
	second  time.Time // when the current second of Rate began
	spoken  int       // lines passed on in that second
	dropped int       // lines dropped in that second
}

// New returns an empty Log.
func New(c Config) *Log {
	c.MaxLine = max(cmp.Or(c.MaxLine, 8<<10), 64)
	c.MaxLines = cmp.Or(c.MaxLines, 100_000)
	c.Rate = cmp.Or(c.Rate, 10_000)
	c.Silence = cmp.Or(c.Silence, 15*time.Second)
	c.Progress = cmp.Or(c.Progress, 2*time.Second)
	l := &Log{c: c, hide: compile(c.Secrets)}
	l.out.log, l.out.limit = l, c.MaxLine
	return l
}

// Write processes output of the build, stdout and stderr interleaved as on a terminal. It never fails before Close.
func (l *Log) Write(p []byte) (int, error) { return l.out.Write(p) }

// Flush ends the unfinished line after a process exited; another process may follow.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// Close flushes and closes the Log; later writes return io.ErrClosedPipe. Excerpt and Cause still work.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
	l.closed = true
	return nil
}

func (l *Log) end() {
	now := time.Now()
	l.out.finish(now)
	l.tellDropped()
}

// emit passes a line to Line unless a limit is reached. l.mu is held.
func (l *Log) emit(now time.Time, line Line) {
	l.recent.add(line.Message, line.Level == "error")
	if now.Sub(l.second) >= time.Second {
		l.tellDropped()
		l.second, l.spoken = now, 0
	}
	switch {
	case l.lines > l.c.MaxLines:
	case l.lines == l.c.MaxLines:
		l.lines++
		l.pass(Line{Level: "warn", Message: fmt.Sprintf("[log limit of %d lines reached: the rest is not stored]", l.c.MaxLines)})
	case l.spoken >= l.c.Rate:
		l.dropped++
	default:
		l.lines++
		l.spoken++
		l.pass(line)
	}
}

func (l *Log) tellDropped() {
	if l.dropped > 0 {
		l.pass(Line{Level: "warn", Message: fmt.Sprintf("[%d lines dropped: more than %d in one second]", l.dropped, l.c.Rate)})
		l.dropped = 0
	}
}

func (l *Log) pass(line Line) {
	if l.c.Line != nil {
		l.c.Line(line)
	}
}
