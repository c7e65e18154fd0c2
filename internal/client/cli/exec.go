package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"slipway/internal/client/rest"
	"slipway/internal/client/terminal"
)

// operation is an operation in API responses.
type operation struct {
	ID     string
	Status string
	Error  string
	Result json.RawMessage
}

// finished waits until an operation has ended and returns it, parsed and raw.
func finished(ctx context.Context, c *rest.Client, answer json.RawMessage) (o operation, raw json.RawMessage, err error) {
	raw = answer
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if err := json.Unmarshal(raw, &o); err != nil || o.ID == "" {
			return o, raw, errors.New("the server's answer names no operation")
		}
		if o.Status != "pending" && o.Status != "running" {
			return o, raw, nil
		}
		select {
		case <-ctx.Done():
			return o, raw, context.Cause(ctx)
		case <-time.After(pause):
		}
		if raw, err = c.Do(ctx, http.MethodGet, "/operations/"+url.PathEscape(o.ID), nil); err != nil {
			return o, raw, err
		}
	}
}

// ended waits for an operation and reports its result.
func (t target) ended(ctx context.Context, e *Env, c *rest.Client, answer json.RawMessage, done string) error {
	o, raw, err := finished(ctx, c, answer)
	if err != nil {
		return failure(err)
	}
	if t.JSON {
		if err := e.json(raw); err != nil {
			return err
		}
	}
	if o.Status != "success" {
		return fmt.Errorf("it ended with the status %s: %s", o.Status, printable(o.Error))
	}
	e.say("%s", done)
	return nil
}

type execCommand struct {
	ofSite
	Timeout time.Duration `env:"-" help:"How long it may run without a terminal, up to an hour. Default: 10m." placeholder:"DURATION"`
	Command []string      `arg:"" optional:"" passthrough:"" help:"Command and its arguments. Default: a shell."`
}

// Run runs a command in the files of the live deployment and exits with its status. If the site allows terminals and
// this is one, the command gets it; otherwise Run prints the output at the end.
func (x execCommand) Run(ctx context.Context, e *Env) error {
	command := strip(x.Command)
	person := e.Ask && e.TTY && !x.JSON && x.Timeout == 0
	if len(command) == 0 && !person {
		return &Failure{exitUsage, errors.New("there is no command; a shell takes a terminal")}
	}
	c, s, err := x.find(ctx, e)
	if err != nil {
		return failure(err)
	}
	line := commandLine(command)
	if person {
		if code, err := terminal.Attach(ctx, c, "/sites/"+s.ID, line); line == "" || !errors.Is(err, terminal.ErrDisabled) {
			return status(code, err)
		}
	}
	answer, err := c.Do(ctx, http.MethodPost, "/sites/"+s.ID+"/commands", map[string]any{
		"command": line, "timeoutSeconds": int(cmp.Or(x.Timeout, 10*time.Minute).Seconds()),
	})
	if err != nil {
		return failure(err)
	}
	o, raw, err := finished(ctx, c, answer)
	if ctx.Err() != nil {
		e.say("The command goes on; its output is in the log: slipway logs")
	}
	if err != nil {
		return failure(err)
	}
	if x.JSON {
		if err := e.json(raw); err != nil {
			return err
		}
	}
	var result *struct {
		ExitCode int
		Reason   string
		Output   string
	}
	if err := json.Unmarshal(o.Result, &result); err != nil && len(o.Result) > 0 {
		return errors.New("the server's answer has no result of a command")
	}
	if result == nil {
		return fmt.Errorf("the command did not run: %s", printable(o.Error))
	}
	if !x.JSON {
		for text := range strings.Lines(result.Output) {
			end := ""
			if strings.HasSuffix(text, "\n") {
				text, end = text[:len(text)-1], "\n"
			}
			if e.TTY {
				text = printable(text)
			}
			fmt.Fprint(e.Out, text+end)
		}
	}
	if o.Status != "success" || result.ExitCode != 0 {
		return &Failure{max(1, result.ExitCode), fmt.Errorf("the command failed: %s", printable(result.Reason))}
	}
	return nil
}

// status turns the exit code of a command in a terminal into an error.
func status(code int, err error) error {
	if err != nil {
		return failure(err)
	}
	if code != 0 {
		return &Failure{code, fmt.Errorf("the command ended with exit code %d", code)}
	}
	return nil
}

// commandLine quotes a command for a shell. A single argument is used as the whole line.
func commandLine(command []string) string {
	if len(command) == 1 {
		return command[0]
	}
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = quoted(w)
	}
	return strings.Join(words, " ")
}

// quoted quotes a word for a POSIX shell.
func quoted(w string) string {
	if w != "" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@,+%") == "" {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
