package buildlog

import "strings"

// The beginnings, in lower case, that make a line more or less than information. Which
// stream a line came from says nothing: most tools report progress on standard error.
var levels = []struct {
	level    string
	prefixes []string
}{
	{"error", []string{
		"npm err!", "npm error", "err_pnpm_", "elifecycle", "error ", "error:", "[error]", "error\t", "error[",
		"fatal:", "fatal error", "panic:", "uncaught ", "unhandled", "traceback (most recent call last)",
		"failed to compile", "build failed", "module not found:", "x build failed", "✗ build failed", "type error:",
		"syntax error", "internal error", "exception:", "failed:", "configuration error", "usage error:",
	}},
	{"warn", []string{
		"npm warn", "warn ", "warn:", "[warn]", "warning ", "warning:", "[warning]", "warn\t", "(!)", "(node:", "⚠", "▲", "deprecated",
	}},
	{"debug", []string{
		"npm verb", "npm sill", "npm http", "npm timing", "debug ", "debug:", "[debug]", "verbose ", "trace:",
	}},
}

// level classifies a line by how it begins, symbols aside.
func level(message string) string {
	const longest = 64 // bytes looked at: beginnings are short
	s := strings.ToLower(message[:min(len(message), longest)])
	s = strings.TrimLeft(s, " \t>│┃|✖✘×⨯❌➤·:-")
	if s == "" {
		return "info"
	}
	for _, l := range levels {
		for _, p := range l.prefixes {
			if strings.HasPrefix(s, p) {
				return l.level
			}
		}
	}
	if s == "error" || exception(message) || strings.Contains(message, ": error TS") {
		return "error"
	}
	return "info"
}

// exception reports whether a line is an exception's first: a class name that ends in
// Error or Exception, then a colon or a code in brackets.
func exception(s string) bool {
	s = strings.TrimPrefix(strings.TrimLeft(s, " "), "Uncaught ")
	n := 0
	for n < len(s) && n < 80 && (s[n] >= 'a' && s[n] <= 'z' || s[n] >= 'A' && s[n] <= 'Z' || s[n] >= '0' && s[n] <= '9' || s[n] == '_' || s[n] == '.') {
		n++
	}
	if !strings.HasSuffix(s[:n], "Error") && !strings.HasSuffix(s[:n], "Exception") {
		return false
	}
	rest := s[n:]
	return strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " [") || strings.HasPrefix(rest, " (")
}
