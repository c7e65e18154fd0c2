package buildlog

import "strings"

// Beginnings of lines, in lower case, and their levels. The stream doesn't matter: most tools report progress on
// stderr.
var levels = []struct {
	level    string
	prefixes []string
}{
	{"error", []string{
		"npm err!", "npm error", "err_pnpm_", "elifecycle", "error ", "error:", "[error]", "error\t", "error[",
		"fatal:", "fatal error", "panic:", "uncaught ", "unhandled", "traceback (most recent call last)",
		"failed to compile", "build failed", "module not found:", "x build failed", "type error:",
		"syntax error", "internal error", "exception:", "failed:", "configuration error", "usage error:",
	}},
	{"warn", []string{
		"npm warn", "warn ", "warn:", "[warn]", "warning ", "warning:", "[warning]", "warn\t", "(!)", "(node:", "deprecated",
	}},
	{"debug", []string{
		"npm verb", "npm sill", "npm http", "npm timing", "debug ", "debug:", "[debug]", "verbose ", "trace:",
	}},
}

type beginning struct{ prefix, level string }

// beginnings holds the levels by first byte, so that most lines need no comparison.
var beginnings = func() (t [256][]beginning) {
	for _, l := range levels {
		for _, p := range l.prefixes {
			t[p[0]] = append(t[p[0]], beginning{p, l.level})
		}
	}
	return t
}()

// level returns a line's level by its beginning, without symbols.
func level(message string) string {
	s := message[:min(len(message), 120)]
	for i, r := range s {
		switch {
		case r == '⚠':
			return "warn"
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '[', r == '(':
			if n := clock(s[i:]); n > 0 {
				return level(s[i+n:])
			}
			return levelOf(s[i:])
		}
	}
	return "info"
}

// clock returns the length of the time at the start of a line, such as 15:04:05 or [15:04:05]; 0 if there is none.
func clock(s string) int {
	skip := 0
	if s[0] == '[' {
		skip = 1
	}
	if len(s) < skip+8 || s[skip+2] != ':' || s[skip+5] != ':' {
		return 0
	}
	for _, i := range []int{0, 1, 3, 4, 6, 7} {
		if b := s[skip+i]; b < '0' || b > '9' {
			return 0
		}
	}
	return skip + 8
}

func levelOf(s string) string {
	var low [64]byte
	n := copy(low[:], s)
	for i, b := range low[:n] {
		if b >= 'A' && b <= 'Z' {
			low[i] = b + 'a' - 'A'
		}
	}
	for _, b := range beginnings[low[0]] {
		if n >= len(b.prefix) && string(low[:len(b.prefix)]) == b.prefix {
			return b.level
		}
	}
	switch {
	case string(low[:n]) == "error", exception(s), strings.Contains(s, ": error TS"), strings.Contains(s, " - error TS"):
		return "error"
	case (strings.HasPrefix(s, "sh: ") || strings.HasPrefix(s, "bash: ")) && (strings.HasSuffix(s, "not found") ||
		strings.HasSuffix(s, "Permission denied")):
		return "error"
	}
	return "info"
}

// exception reports whether a line begins an exception: a class name ending in Error or Exception, then a colon or a
// code in brackets.
func exception(s string) bool {
	n := 0
	for n < len(s) && (s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || s[n] >= '0' && s[n] <= '9' || s[n] == '_' || s[n] == '.') {
		n++
	}
	if !strings.HasSuffix(s[:n], "Error") && !strings.HasSuffix(s[:n], "Exception") {
		return false
	}
	rest := s[n:]
	return strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " [") || strings.HasPrefix(rest, " (")
}
