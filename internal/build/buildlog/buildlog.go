// Package buildlog owns the output of builds: it turns the bytes of an untrusted process into
// log lines that can be shown, and the lines of a failed build into a likely cause.
//
// A stream passes three steps. The terminal step keeps text and colors and drops
// every other control sequence, so that a line can neither move a reader's cursor nor
// hide its content. The redaction step works on that text: values of secrets, and
// their usual encodings, become [secret] even if they are split between writes. The
// line step cuts, classifies and counts. Memory is bounded by the longest line, the
// secrets and a few hundred remembered lines, whatever the process writes.
//
// Redaction protects people who print their environment by mistake. It is not a security
// boundary: a malicious build can always encode a secret in another way.
// The package never stores anything, and knows nothing of deployments.
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
	Message string // plain text: no control character but tab
	Raw     string // Message with its SGR colors (ECMA-48 8.3.117); "" when it has none
}

// Config says what a build may say and who hears it.
type Config struct {
	// Line is called for every line in order, from one goroutine at a time, and while
	// a lock is held: it must not call back into the Log.
	Line func(Line)
	// Secrets are the values that never appear. One shorter than 6 bytes is left
	// alone; of a value of several lines, so is each line shorter than 8.
	Secrets  []string
	MaxLine  int           // bytes of Message; longer lines are cut into several. Optional: 0 means 8 KiB, at least 64.
	MaxLines int           // lines passed on in all; Excerpt and Cause still see the rest. Optional: 0 means 100,000.
	Rate     int           // lines passed on per second. Optional: 0 means 10,000.
	Silence  time.Duration // after which an unfinished line, such as a prompt, is passed on. Optional: 0 means 15 s.
	Progress time.Duration // at most one state of a line that rewrites itself is passed on per this. Optional: 0 means 2 s.
}

// Log turns the output of one build into lines. Its methods may be called from any
// goroutine; it holds no resource that outlives Close.
type Log struct {
	c      Config
	hide   *automaton
	out    stream
	recent memory

	mu      sync.Mutex // guards what follows, out and recent
	closed  bool
	lines   int
	second  time.Time // when the current second of Rate began
	spoken  int       // lines in it
	dropped int       // lines in it that were not passed on
}

// New returns a Log that has seen nothing.
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

// Write takes output: both streams of the build, in the order in which they were written,
// as on a terminal. It never fails before Close.
func (l *Log) Write(p []byte) (int, error) { return l.out.Write(p) }

// Flush ends the unfinished line: the process that wrote them is gone,
// another may follow.
func (l *Log) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// Close does what Flush does and ends the Log; later writes answer io.ErrClosedPipe.
// Excerpt and Cause go on working.
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

// emit passes one line on, unless there were too many. l.mu is held.
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
