// Package terminal owns the client side of a terminal in a site's sandbox: it sends input, shows output, and returns
// the command's exit code. The caller puts the local terminal into raw mode.
package terminal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"
)

// MaxMessage is the largest message from the server, in bytes.
const MaxMessage = 1 << 20

// Intervals of checking the local terminal's size and of pinging, and the time limit for a pong.
const (
	sizeEvery = 500 * time.Millisecond
	pingEvery = 15 * time.Second
	pingTime  = 45 * time.Second
)

// Size is a terminal's size in characters.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// Screen is the local terminal.
type Screen interface {
	io.Writer
	// Size returns the current size, or zero if unknown.
	Size() Size
}

// Ended says why a terminal was closed before its command ended.
type Ended struct{ Reason string }

// Error returns the reason.
func (e *Ended) Error() string { return e.Reason }

// errLost is returned if the connection breaks, which also ends the command.
var errLost = &Ended{"the connection to the terminal was lost, and its command was ended"}

// Run runs a terminal until its command ends, and returns the exit code. A Read of typed may continue afterwards.
func Run(ctx context.Context, c *websocket.Conn, typed io.Reader, out Screen) (code int, err error) {
	defer c.CloseNow()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		b := make([]byte, 16<<10)
		for {
			n, err := typed.Read(b)
			if n > 0 && c.Write(ctx, websocket.MessageBinary, b[:n]) != nil {
				return // the reader returns the cause
			}
			if err != nil {
				return
			}
		}
	}()
	go tend(ctx, cancel, c, out)
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			return 0, ended(ctx, err)
		}
		if kind == websocket.MessageBinary {
			if _, err := out.Write(data); err != nil {
				return 0, err
			}
			continue
		}
		var last struct{ ExitCode *int }
		if json.Unmarshal(data, &last) == nil && last.ExitCode != nil {
			_ = c.Close(websocket.StatusNormalClosure, "")
			return *last.ExitCode, nil
		}
	}
}

// ended returns why there is no more output.
func ended(ctx context.Context, err error) error {
	var closed websocket.CloseError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &closed) && closed.Reason != "":
		return &Ended{closed.Reason}
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// tend sends changes of the terminal's size, and detects a lost connection.
func tend(ctx context.Context, cancel context.CancelCauseFunc, c *websocket.Conn, out Screen) {
	look, try := time.NewTicker(sizeEvery), time.NewTicker(pingEvery)
	defer look.Stop()
	defer try.Stop()
	told := out.Size()
	for {
		select {
		case <-ctx.Done():
			return
		case <-try.C:
			waiting, done := context.WithTimeout(ctx, pingTime)
			err := c.Ping(waiting)
			done()
			if err != nil && ctx.Err() == nil {
				cancel(errLost)
				return
			}
		case <-look.C:
			if now := out.Size(); now != told && now.Columns > 0 && now.Rows > 0 {
				told = now
				if b, err := json.Marshal(now); err == nil {
					_ = c.Write(ctx, websocket.MessageText, b)
				}
			}
		}
	}
}
