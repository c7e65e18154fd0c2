package relay

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/program/runtime"
	"slipway/internal/program/task"
)

// What is typed, what is shown, sizes and the end of a terminal go over a connection between nodes in frames: each a kind, two bytes
// that say how long it is, and that many bytes.
const (
	frameTyped  = 'i' // to the program
	frameHangUp = 'h' // nothing more is typed
	frameSize   = 's' // the terminal's new size, as JSON
	frameShown  = 'o' // by the program
	frameAlive  = 'a' // nothing: whether the other end is still there
	frameEnd    = 'x' // how it ended, as JSON
)

// maxFrame bounds what a frame holds.
const maxFrame = 32 << 10

// frameTime bounds how long the other end may take to take a frame. While the user's browser takes nothing, the program waits.
const frameTime = 2 * time.Minute

// aliveEvery is how often it is tried whether the other end is still there: while the program doesn't read what was typed, nothing else
// shows that.
const aliveEvery = 10 * time.Second

// Shell is a command that has a terminal.
type Shell struct {
	Deployment id.Deployment // in whose sandbox
	Command    task.Command
	Process    string        // what the site's log calls it
	Timeout    time.Duration // after which it is ended
	Size       runtime.Size  // of the terminal, at the start
}

// ended is how a shell ended, or why it did not start.
type ended struct {
	Exit  runtime.Exit
	Fault *refused `json:",omitempty"`
}

// frames writes frames of one kind.
type frames struct {
	mu *sync.Mutex // held while one is written
	c  net.Conn
	as byte
}

func (f frames) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+maxFrame)]
		if err := f.send(part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

func (f frames) send(part []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_ = f.c.SetWriteDeadline(time.Now().Add(frameTime))
	frame := binary.BigEndian.AppendUint16([]byte{f.as}, uint16(len(part))) //nolint:gosec // at most maxFrame
	_, err := f.c.Write(append(frame, part...))
	return err
}

// readFrame reads a frame into room, which the next one may overwrite.
func readFrame(r io.Reader, room []byte) (as byte, part []byte, err error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > len(room) {
		return 0, nil, errors.New("a frame is too long")
	}
	_, err = io.ReadFull(r, room[:n])
	return head[0], room[:n], err
}

// Shell executes a command with a terminal at the node with an address, and returns how it ended.
func (d *Dialer) Shell(ctx context.Context, address string, s Shell, t *runtime.Terminal) (runtime.Exit, error) {
	s.Size = t.Size
	c, _, err := d.dial(ctx, address, asked{Shell: &s}) // an earlier version closes the connection
	switch {
	case err == nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, ErrUnreached):
		err = &fault.Error{
			Kind: fault.Unavailable, Message: "The node where the site runs doesn't answer", Code: "node_down",
			RetryAfter: 5 * time.Second,
		}
	}
	if err != nil {
		return runtime.Exit{}, err
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var mu sync.Mutex
	// uncaught: copies bytes, or passes sizes on
	go func() { // whoever made Input ends it with the program
		if _, err := io.Copy(frames{&mu, c, frameTyped}, t.Input); err == nil {
			_ = frames{&mu, c, frameHangUp}.send(nil)
		}
	}()
	// uncaught: copies bytes, or passes sizes on
	go func() {
		for {
			select {
			case size, ok := <-t.Sizes:
				if !ok {
					return
				}
				if text, err := json.Marshal(size); err == nil {
					_ = frames{&mu, c, frameSize}.send(text)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	for room := make([]byte, maxFrame); ; {
		as, part, err := readFrame(c, room)
		if ctx.Err() != nil {
			return runtime.Exit{}, context.Cause(ctx)
		}
		if err != nil {
			err = &fault.Error{Kind: fault.Unavailable, Message: "The node where the site runs has closed the terminal", Code: "draining"}
			return runtime.Exit{}, err
		}
		switch as {
		case frameShown:
			if _, err := t.Output.Write(part); err != nil {
				return runtime.Exit{}, err
			}
		case frameEnd:
			var end ended
			if err := json.Unmarshal(part, &end); err != nil {
				return runtime.Exit{}, fmt.Errorf("end of a terminal on another node: %w", err)
			}
			if end.Fault != nil {
				return end.Exit, end.Fault.fault()
			}
			return end.Exit, nil
		}
	}
}

// shell executes a command here whose terminal another node has, until it ends or that node closes the connection.
func (s *Server) shell(ctx context.Context, x Shell, c net.Conn) {
	line, err := json.Marshal(answered{Program: &Program{}})
	if err == nil {
		_, err = c.Write(append(line, '\n'))
	}
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in, typed := io.Pipe()
	defer in.Close()
	sizes := make(chan runtime.Size)
	panics.Go(func() {
		defer cancel() // nobody is there any more
		defer typed.Close()
		for room := make([]byte, maxFrame); ; {
			as, part, err := readFrame(c, room)
			if err != nil {
				return
			}
			switch as {
			case frameTyped:
				_, _ = typed.Write(part) // what has ended reads nothing
			case frameHangUp:
				typed.Close()
			case frameSize:
				var size runtime.Size
				if json.Unmarshal(part, &size) != nil {
					return
				}
				select {
				case sizes <- size:
				case <-ctx.Done():
					return
				}
			}
		}
	})
	var mu sync.Mutex
	// uncaught: copies bytes, or passes sizes on
	go func() {
		tick := time.NewTicker(aliveEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-tick.C:
				if (frames{&mu, c, frameAlive}).send(nil) != nil {
					cancel()
				}
			case <-ctx.Done():
			}
		}
	}()
	exit, err := s.Programs.Shell(ctx, x, &runtime.Terminal{
		Input: in, Output: frames{&mu, c, frameShown}, Size: x.Size, Sizes: sizes,
	})
	end := ended{Exit: exit}
	if err != nil && ctx.Err() == nil {
		end.Fault = s.refusal(ctx, "terminal not opened for another node", x.Deployment, err)
	}
	if text, err := json.Marshal(end); err == nil {
		_ = frames{&mu, c, frameEnd}.send(text)
	}
}
