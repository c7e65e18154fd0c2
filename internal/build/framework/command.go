package framework

import (
	"strings"

	"slipway/internal/platform/lazyregexp"
)

// plainCommand matches command lines that need no shell: words without quotes, variables, globs, pipes or redirections.
var plainCommand = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./ -]+$`)

// ParseCommand parses a command that a user entered. A command that needs no shell runs without one, which saves a
// process and lets signals reach the program.
func ParseCommand(text string) Command {
	if words := strings.Fields(text); plainCommand.MatchString(text) && len(words) > 0 && !strings.Contains(words[0], "=") {
		return Command{Argv: words}
	}
	return Command{Shell: text}
}
