package app

import (
	"sync"

	"slipway/internal/build/buildlog"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/text"
)

// maxRecent caps the bytes of a line that recent keeps.
const maxRecent = 2 << 10

// recent keeps the last lines that a program prints before it is healthy, to say why it isn't.
type recent struct {
	mu    sync.Mutex // guards what follows
	lines []string
	over  bool // the program is healthy
}

func (r *recent) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	if len(r.lines) == lastLines {
		r.lines = r.lines[1:]
	}
	r.lines = append(r.lines, text.Clip(line, maxRecent))
}

// end forgets the lines. Trials keep none.
func (r *recent) end() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines, r.over = nil, true
}

// explain puts the cause that the lines show in the place of "see its log". dir is the folder that the program runs in.
func (r *recent) explain(err error, dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := fault.As(err); f != nil && f.Details == seeLog {
		if cause := buildlog.StartCause(r.lines, dir); cause != "" {
			own := *f
			own.Details = cause
			return &own
		}
	}
	return err
}
