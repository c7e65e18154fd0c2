package framework

import (
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// plainCommand is a command line that needs no shell: words without quotes, variables,
// patterns, pipes or redirections.
var plainCommand = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./ -]+$`)

// ParseCommand reads a command that somebody typed. One that needs no shell runs without:
// that saves a process, and signals reach the program itself.
func ParseCommand(text string) Command {
	if words := strings.Fields(text); plainCommand.MatchString(text) && len(words) > 0 && !strings.Contains(words[0], "=") {
		return Command{Argv: words}
	}
	return Command{Shell: text}
}
