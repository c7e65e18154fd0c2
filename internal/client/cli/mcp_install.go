package cli

import (
	"context"
	"os"
	"os/exec"

	"slipway/internal/client/agents"
)

type installMCP struct {
	target
	narrowed
	Client string `env:"-" required:"" enum:"claude-code,claude-desktop,cursor,vscode,gemini,windsurf,codex" help:"The agent: claude-code, claude-desktop, cursor, vscode, gemini, windsurf or codex." placeholder:"NAME"`
	Print  bool   `env:"-" help:"Print what would be written, and write nothing."`
}

// Run adds a server named slipway to an agent's settings and keeps everything else.
func (i installMCP) Run(ctx context.Context, e *Env) error {
	c, err := i.client(e)
	if err != nil {
		return failure(err)
	}
	q, err := i.query(ctx, c)
	if err != nil {
		return failure(err)
	}
	// The settings contain no token: the program reads its own.
	args := []string{"mcp", "serve", "--server", c.Server()}
	if i.Read {
		args = append(args, "--read")
	}
	if ids := q.Get("sites"); ids != "" {
		args = append(args, "--sites", ids)
	}
	settings, err := agents.Of(i.Client, e.Dir)
	if err != nil {
		return err
	}
	text, err := settings.With(program(), args)
	if err != nil {
		return err
	}
	if i.Print {
		_, err := e.Out.Write(text)
		return err
	}
	if err := settings.Write(text); err != nil {
		return err
	}
	e.say("Added slipway to %s. Restart %s, or reload its MCP servers", settings.Name, i.Client)
	return nil
}

// program returns how an agent starts this program: by name if the shell finds the same one, else by path.
func program() string {
	self, err := os.Executable()
	if err != nil {
		return "slipway"
	}
	if found, err := exec.LookPath("slipway"); err == nil {
		a, err1 := os.Stat(found)
		b, err2 := os.Stat(self)
		if err1 == nil && err2 == nil && os.SameFile(a, b) {
			return "slipway"
		}
	}
	return self
}
