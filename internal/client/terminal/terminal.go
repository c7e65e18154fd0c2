// Package terminal owns the client's end of a terminal in a site's sandbox: what is typed goes there, what the command shows comes
// back, and its exit code is the result. It knows no device: who calls it makes the local terminal raw.
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

// MaxMessage is the most bytes that the server sends at once.
const MaxMessage = 1 << 20

// How often the local terminal's size is looked at, and the connection tried; and how long an answer to that may take.
const (
	sizeEvery = 500 * time.Millisecond
	pingEvery = 15 * time.Second
	pingTime  = 45 * time.Second
)

// Size is that of a terminal, in characters.
type Size struct {
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// Screen is what shows a terminal on this side.
type Screen interface {
	io.Writer
	// Size returns its size at the moment; zero where it isn't known.
	Size() Size
}

// Ended is why a terminal was closed before its command ended.
type Ended struct{ Reason string }

// Error is a sentence.
func (e *Ended) Error() string { return e.Reason }

// errLost is the error of a connection that breaks: the command was ended then, or is soon.
var errLost = &Ended{"the connection to the terminal was lost, and its command was ended"}

// Run carries a terminal until its command ends, and returns the exit code. A Read of what is typed may go on after it.
func Run(ctx context.Context, c *websocket.Conn, typed io.Reader, out Screen) (code int, err error) {
	defer c.CloseNow()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		b := make([]byte, 16<<10)
		for {
			n, err := typed.Read(b)
			if n > 0 && c.Write(ctx, websocket.MessageBinary, b[:n]) != nil {
				return // the reader says why
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

// ended returns why there is nothing more to read.
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

// tend tells the server of the terminal's size, and notices a server that is gone.
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
