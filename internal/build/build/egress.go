package build

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
)

// What one build may send and receive, and how many connections it may have at once.
const (
	maxTransfer = 4 << 30
	maxConns    = 512
)

// Network opens the only way out of one sandbox: our proxy, on a socket in dir, which is
// ours and closed to others.
//
// What the proxy turns away is told to refused, once for each address.
func Network(ctx context.Context, out *egress.Egress, dir string, refused func(why string)) (sandbox.Network, func(), error) {
	l, name, err := sandbox.Listen(dir, "egress.sock")
	if err != nil {
		return sandbox.Network{}, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	// uncaught: accepts; net/http catches
	go func() {
		defer close(served)
		out.Proxy(egress.ProxyConfig{Quota: maxTransfer, Conns: maxConns, Resolve: true, Refused: once(refused)}).Serve(ctx, l)
	}()
	return sandbox.Network{Proxy: name}, func() { cancel(); <-served }, nil
}

// maxRefusals is how many refused addresses of a build its log names.
const maxRefusals = 20

// once passes each refusal on a single time, in words.
func once(say func(why string)) func(addr string, err error) {
	var mu sync.Mutex // guards said
	said := map[string]bool{}
	return func(addr string, err error) {
		why := ""
		switch {
		case errors.Is(err, egress.ErrQuota):
			why = fmt.Sprintf("Network access was cut off: this build has transferred more than %d GiB", maxTransfer>>30)
		case errors.Is(err, egress.ErrBlocked):
			why = fmt.Sprintf("Connection to %s refused: its address is not public, and builds reach public addresses only", addr)
		case errors.Is(err, egress.ErrPolicy):
			why = fmt.Sprintf("Connection to %s refused: builds connect to ports 80 and 443 only", addr)
		default:
			why = fmt.Sprintf("Connection to %s failed: the host does not answer", addr)
		}
		mu.Lock()
		defer mu.Unlock()
		if said[why] || len(said) >= maxRefusals {
			return
		}
		said[why] = true
		say(why)
	}
}
