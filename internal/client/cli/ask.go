package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/term"
)

// await returns the result of read, or ctx's error: on Ctrl-C a terminal read continues in the background.
func await(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := read()
		got <- answer{text, err}
	}()
	select {
	case a := <-got:
		return a.text, a.err
	case <-ctx.Done():
		return "", failure(context.Cause(ctx))
	}
}

// line reads one line and trims spaces. It returns "" at the end of the input.
func (e *Env) line(ctx context.Context) (string, error) {
	text, err := await(ctx, func() (string, error) { return bufio.NewReader(io.LimitReader(e.In, 1<<10)).ReadString('\n') })
	if ctx.Err() != nil {
		e.say("")
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return strings.TrimSpace(text), err
}

// yes asks a yes/no question.
func (e *Env) yes(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(e.Err, "%s [y/N] ", printable(question))
	line, err := e.line(ctx)
	answer := strings.ToLower(line)
	return answer == "y" || answer == "yes", err
}

// confirm returns an error unless the user types a name or has passed it with --yes.
func (e *Env) confirm(ctx context.Context, what, name, yes string) error {
	if yes == name {
		return nil
	}
	if yes != "" {
		return needed("--yes=%s is another name: give --yes=%s", yes, quoted(name))
	}
	if !e.Ask {
		return needed("%s Confirm it with --yes=%s", what, quoted(name))
	}
	fmt.Fprintf(e.Err, "%s\nType %s to confirm: ", printable(what), printable(name))
	line, err := e.line(ctx)
	if err == nil && line != name {
		err = needed("nothing was done: %s was not typed", name)
	}
	return err
}

// maxValue caps a value on standard input; the server accepts 32 KiB.
const maxValue = 64 << 10

// secret reads a value from standard input, without echo on a terminal. On Ctrl-C it turns the echo on again.
func (e *Env) secret(ctx context.Context, prompt string) (string, error) {
	if f, ok := e.In.(interface{ Fd() uintptr }); ok && e.Ask {
		at := int(f.Fd())
		before, err := term.GetState(at)
		if err != nil {
			return "", err
		}
		fmt.Fprint(e.Err, prompt)
		text, err := await(ctx, func() (string, error) {
			b, err := term.ReadPassword(at)
			return string(b), err
		})
		fmt.Fprintln(e.Err)
		if ctx.Err() != nil {
			err = errors.Join(err, term.Restore(at, before))
		}
		return text, err
	}
	b, err := io.ReadAll(io.LimitReader(e.In, maxValue+1))
	if err == nil && len(b) > maxValue {
		err = errors.New("the value on standard input is too long")
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), err
}
