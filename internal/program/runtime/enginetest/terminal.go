package enginetest

import (
	"io"
	"strings"
	"sync"
	"time"

	"slipway/internal/program/runtime"
)

// screen holds what a program wrote to its terminal.
type screen struct {
	mu    sync.Mutex // guards the following fields
	text  strings.Builder
	wrote chan struct{}
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(p)
	select {
	case s.wrote <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// terminalOf gives a program a terminal, and returns its screen and a writer that types into it.
func (w *world) terminalOf(s *runtime.Spec, sizes <-chan runtime.Size) (*screen, *io.PipeWriter) {
	in, typed := io.Pipe()
	w.t.Cleanup(func() { in.Close() })
	out := &screen{wrote: make(chan struct{}, 1)}
	s.Terminal = &runtime.Terminal{Input: in, Output: out, Size: runtime.Size{Columns: 100, Rows: 30}, Sizes: sizes}
	return out, typed
}

// shows waits until the screen holds a text.
func (w *world) shows(s *screen, want string) {
	w.t.Helper()
	late := time.After(patience)
	for !strings.Contains(s.String(), want) {
		select {
		case <-s.wrote:
		case <-late:
			w.t.Fatalf("the terminal does not show %q but\n%s\n%s", want, s, w.said())
		}
	}
}

func terminal(w *world) {
	s := w.spec("terminal")
	s.Argv = []string{"node", "-e", `
		process.stdin.setRawMode(true)
		process.stdout.on('resize', () => console.log(['now', process.stdout.columns, process.stdout.rows].join(' ')))
		process.stdin.on('data', d => { console.log('typed', JSON.stringify(String(d))); if (String(d) === 'q') process.exit(6) })
		require('fs').writeFileSync('/dev/stdout', 'opened\n')
		console.log([process.stdin.isTTY, process.stdout.isTTY, process.stderr.isTTY, process.stdout.columns, process.stdout.rows, process.env.TERM].join(' '))`}
	sizes := make(chan runtime.Size)
	screen, typed := w.terminalOf(&s, sizes)
	p := w.start(s)
	w.shows(screen, "opened")
	w.shows(screen, "true true true 100 30 xterm-256color")
	sizes <- runtime.Size{Columns: 60, Rows: 20}
	w.shows(screen, "now 60 20")
	io.WriteString(typed, "\x03")
	w.shows(screen, `typed "\u0003"`)
	io.WriteString(typed, "q")
	if e := w.ended(p); e.Code != 6 {
		w.t.Errorf("the command ended as %+v", e)
	}
	w.shows(screen, `typed "q"`) // the program wrote this before its end
}

func interrupts(w *world) {
	s := w.spec("interrupts")
	s.Argv, s.Shell = nil,
		`trap 'echo interrupted' INT; node -e "setInterval(() => {}, 1000); console.log('begun')"; trap 'exit 7' HUP; echo next; while :; do sleep .1; done`
	screen, typed := w.terminalOf(&s, nil)
	p := w.start(s)
	w.shows(screen, "begun")
	io.WriteString(typed, "\x03") // Ctrl+C ends the process in the foreground
	w.shows(screen, "interrupted")
	w.shows(screen, "next")
	typed.Close()
	if e := w.ended(p); e.Code != 7 {
		w.t.Errorf("the command ended as %+v", e)
	}
	s = w.spec("deaf")
	s.Argv, s.Shell = nil, `trap '' HUP TERM INT; echo begun; while :; do sleep 1000; done`
	screen, _ = w.terminalOf(&s, nil)
	p = w.start(s)
	w.shows(screen, "begun")
	p.Stop(0)
	w.ended(p)
}
