package sandbox

import (
	"fmt"
	"io"
	"os"
	"sync"

	"slipway/internal/platform/text"
)

// meter forwards a command's output up to a limit, then writes a marker once and drops the rest, and reports a flood.
// It drops instead of blocking, so that a verbose build can finish and one that only prints is stopped.
type meter struct {
	limit int64
	flood func()

	mu      sync.Mutex // guards the fields below and serializes the writers
	seen    int64
	marked  bool
	flooded bool
	err     error // a writer's first error
}

// copy copies src to dst, which may be nil.
func (m *meter) copy(src *os.File, dst io.Writer) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			m.write(dst, buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (m *meter) write(dst io.Writer, p []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	room := max(0, m.limit-m.seen)
	m.seen += int64(len(p))
	if m.seen > m.limit*floodFactor && !m.flooded {
		m.flooded = true
		m.flood()
	}
	if keep := p[:min(room, int64(len(p)))]; len(keep) > 0 {
		m.pass(dst, keep)
	}
	if m.seen > m.limit && !m.marked {
		m.marked = true
		m.pass(dst, fmt.Appendf(nil, "\n[output limit of %s reached: the rest is not stored]\n", text.Size(m.limit)))
	}
}

func (m *meter) pass(dst io.Writer, p []byte) {
	if dst == nil || m.err != nil {
		return
	}
	if _, err := dst.Write(p); err != nil {
		m.err = err
	}
}

// head keeps the first bytes written, for the error of a sandbox that didn't start.
type head struct {
	mu   sync.Mutex // guards text
	text []byte
	next io.Writer
}

const headSize = 2 << 10

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	h.text = append(h.text, p[:min(len(p), headSize-len(h.text))]...)
	h.mu.Unlock()
	if h.next == nil {
		return len(p), nil
	}
	return h.next.Write(p)
}
