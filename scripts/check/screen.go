package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/scripts/internal/machine"
)

// screen writes check's output and the progress of the running step: on a terminal in one line below the output,
// elsewhere in a line now and then.
type screen struct {
	columns func() int // width of the terminal; nil if it isn't one
	every   time.Duration

	mu    sync.Mutex // guards the following fields
	to    io.Writer
	below bool // whether the progress is shown
}

func newScreen(to *os.File) *screen {
	s := &screen{to: to, every: 20 * time.Second}
	if machine.Terminal(to) && os.Getenv("TERM") != "dumb" {
		s.every = time.Second
		s.columns = func() int {
			size, err := unix.IoctlGetWinsize(int(to.Fd()), unix.TIOCGWINSZ)
			if err != nil || size.Col == 0 {
				return 80
			}
			return int(size.Col)
		}
	}
	return s
}

// Write writes complete lines.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	return s.to.Write(p)
}

// clear removes the progress. The caller holds mu.
func (s *screen) clear() {
	if s.below {
		io.WriteString(s.to, "\r\x1b[K")
	}
	s.below = false
}

// follow shows the result of progress for the elapsed time until stop is called.
func (s *screen) follow(progress func(took time.Duration) string) (stop func()) {
	began := time.Now()
	tick := time.NewTicker(s.every)
	stopped, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-tick.C:
				s.show(progress(time.Since(began).Round(time.Second)))
			case <-stopped:
				return
			}
		}
	}()
	return func() {
		tick.Stop()
		close(stopped)
		<-ended
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clear()
	}
}

func (s *screen) show(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = "  … " + text
	if s.columns == nil {
		fmt.Fprintln(s.to, text)
		return
	}
	if line := []rune(text); len(line) >= s.columns() {
		text = string(line[:max(0, s.columns()-1)])
	}
	s.clear()
	io.WriteString(s.to, text)
	s.below = true
}
