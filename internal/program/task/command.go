package task

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/db"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/platform/panics"
	"slipway/internal/tenant/account"
)

// holdEvery is how often a running command asks whether its user still has the right to it.
const holdEvery = 2 * time.Second

// WhileAllowed returns a context that ends, with a fault as its cause, when the user of a command loses the right to run
// it on a site: removed from the team, given a lower role, or suspended. done ends the watch.
func WhileAllowed(
	ctx context.Context, r db.Reader, user account.UserID, owner account.OwnerID, site id.Site,
) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if user == "" {
		return ctx, func() { cancel(nil) }
	}
	refused := func() bool {
		err := account.MayOn(ctx, r, user, owner, account.SitesWrite, site)
		if fault.As(err) == nil {
			return false // a database that doesn't answer takes no rights away
		}
		cancel(&fault.Error{
			Kind: fault.Forbidden, Message: "The command was ended: the user who started it may not run it any more", Code: "not_allowed",
		})
		return true
	}
	if refused() { // while it waited in the queue
		return ctx, func() {}
	}
	panics.Go(func() {
		defer cancel(nil) // also after a panic: what is not watched ends
		for tick := time.NewTicker(holdEvery); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			if ctx.Err() != nil || refused() {
				tick.Stop()
				return
			}
		}
	})
	return ctx, func() { cancel(nil) }
}

// TailBytes is how much of a command's output a Tail holds.
const TailBytes = 64 << 10

// Tail holds the last of what a command printed, in whole lines where they are not longer
// than that.
type Tail struct {
	mu   sync.Mutex // guards text
	text []byte
}

// Add adds a line.
func (t *Tail) Add(_, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(append(t.text, line[max(0, len(line)-TailBytes):]...), '\n')
	if len(t.text) > 2*TailBytes {
		t.text = append(t.text[:0], t.last()...)
	}
}

// last returns the text that is held. t.mu is held.
func (t *Tail) last() []byte {
	b := t.text[max(0, len(t.text)-TailBytes):]
	if len(b) < len(t.text) {
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i < len(b)-1 {
			b = b[i+1:]
		}
	}
	return b
}

// Get returns what it holds.
func (t *Tail) Get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.last()), "")
}
