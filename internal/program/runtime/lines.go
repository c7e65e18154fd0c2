package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"slipway/internal/platform/egress"
)

// maxLine is how many bytes of a line are passed on; the rest of it is dropped.
const maxLine = 16 << 10

// lines cuts what a program writes to one stream into lines.
type lines struct {
	stream string
	to     func(stream, line string)

	mu   sync.Mutex // guards held, cut
	held []byte
	cut  bool // the rest of the line is dropped
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		part := p
		if i >= 0 {
			part = p[:i]
		}
		if room := maxLine - len(l.held); len(part) > room {
			part, l.cut = part[:room], true
		}
		l.held = append(l.held, part...)
		if i < 0 {
			break
		}
		l.say()
		p = p[i+1:]
	}
	return n, nil
}

// say passes the line on that is held.
func (l *lines) say() {
	text := strings.ToValidUTF8(strings.TrimSuffix(string(l.held), "\r"), "\uFFFD")
	text = strings.ReplaceAll(text, "\x00", "")
	if l.cut {
		text += "…"
	}
	l.held, l.cut = l.held[:0], false
	if l.to != nil {
		l.to(l.stream, text)
	}
}

// flush passes the last line on, which has no end.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held) > 0 {
		l.say()
	}
}

// maxRefusals is how many refused addresses of a program its log names.
const maxRefusals = 20

// refused says once for each address why a connection was refused.
func (l *lines) refused() func(addr string, err error) {
	var mu sync.Mutex // guards said
	said := map[string]bool{}
	return func(addr string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if said[addr] || len(said) >= maxRefusals || l.to == nil {
			return
		}
		said[addr] = true
		why := "the host does not answer"
		switch {
		case errors.Is(err, egress.ErrBlocked):
			why = "its address is not public"
		case errors.Is(err, egress.ErrPolicy):
			why = "only ports 80 and 443 are open, and those of run.ports"
		case errors.Is(err, egress.ErrBusy):
			why = "the program has too many connections open"
		case errors.As(err, new(*net.DNSError)):
			why = "its name could not be looked up"
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.to("system", fmt.Sprintf("Connection to %s refused: %s", addr, why))
	}
}
