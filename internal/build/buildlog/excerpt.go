package buildlog

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// What is kept for Excerpt and Cause: a few blocks that begin with an error, and the last lines.
const (
	tailLines  = 200
	blockLines = 60
	blocksKept = 12  // the oldest block and the newest ones
	blockGap   = 6   // lines without errors that end a block
	clipLine   = 500 // bytes of a remembered line
)

// memory keeps the lines that may explain a failure.
type memory struct {
	tail   []string // a ring once it is full
	next   int      // next index in the ring
	blocks []block
	quiet  int // lines since the block's last error line
}

type block struct {
	lines []string
	noise bool // whether the block is only a package manager's summary
}

// noise matches what package managers print after a script has failed.
var noise = lazy(`^[\s\x{2009}]*(` +
	`(npm (error|ERR!)( (code (ELIFECYCLE|\d+)\b|errno|path|workspace|location|command|Lifecycle script|A complete log|` +
	`in workspace|Exit status|Failed at the|This is probably not|Make sure|Tell the author|If you do|\s).*| *)$)` +
	`|\[?ELIFECYCLE|ERR_PNPM_RECURSIVE_RUN_FIRST_FAIL` + // pnpm puts thin spaces around its codes
	`|error Command failed with exit code|info Visit |Exit code: |Command: ` + // yarn
	`|error: script "[^"]*" exited with code` + // bun
	`|\$ \S)`) // the command itself, as the log prints it

// stacky matches lines that continue an error: a stack frame, a code frame, or an indented remark.
var stacky = lazy(`^(\s+\S|at |> +\d+ \||\d+ \||\./\S|file:|[\w@./\\-]+[:(]\d+[:,]\d+|.*\berror\b.*:)`)

func (m *memory) add(s string, failing bool) {
	if len(s) > clipLine {
		n := clipLine
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = strings.Clone(s[:n]) + "…"
	}
	if len(m.tail) < tailLines {
		m.tail = append(m.tail, s)
	} else {
		m.tail[m.next] = s
		m.next = (m.next + 1) % tailLines
	}
	m.note(s, failing)
}

// note adds a line to its block, if any.
func (m *memory) note(s string, failing bool) {
	last := len(m.blocks) - 1
	running := last >= 0 && m.quiet < blockGap
	trailer := failing && noise().MatchString(s)
	// A new error starts a new block after a summary.
	if failing && (!running || m.blocks[last].noise && !trailer) {
		if len(m.blocks) == blocksKept {
			m.blocks = append(m.blocks[:1], m.blocks[2:]...)
		}
		m.blocks = append(m.blocks, block{lines: []string{s}, noise: trailer})
		m.quiet = 0
		return
	}
	if !running {
		return
	}
	m.quiet++
	if failing || stacky().MatchString(s) {
		m.quiet = 0
	}
	if len(m.blocks[last].lines) < blockLines {
		m.blocks[last].lines = append(m.blocks[last].lines, s)
	}
}

// last returns the last n remembered lines.
func (m *memory) last(n int) []string {
	all := append(append([]string(nil), m.tail[m.next:]...), m.tail[:m.next]...)
	return all[max(0, len(all)-n):]
}

// Excerpt returns at most max lines that are most likely to explain a failure: the last block that is more than a
// package manager's summary, else the last lines. Secrets are hidden.
func (l *Log) Excerpt(max int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if max <= 0 {
		return nil
	}
	for i := len(l.recent.blocks) - 1; i >= 0; i-- {
		if b := l.recent.blocks[i]; !b.noise {
			lines := trim(slices.DeleteFunc(slices.Clone(b.lines), noise().MatchString))
			return lines[:min(len(lines), max)]
		}
	}
	lines := l.recent.last(tailLines)
	if n := len(lines); n > 0 && strings.HasPrefix(lines[n-1], "$ ") {
		return nil // the command printed nothing, and earlier commands succeeded
	}
	for len(lines) > 0 && (noise().MatchString(lines[len(lines)-1]) || strings.TrimSpace(lines[len(lines)-1]) == "") {
		lines = lines[:len(lines)-1]
	}
	if len(lines) == 0 {
		lines = l.recent.last(tailLines)
	}
	return trim(lines[len(lines)-min(len(lines), max):])
}

// trim removes blank lines at both ends.
func trim(lines []string) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
