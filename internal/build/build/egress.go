package build

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"slipway/internal/platform/egress"
	"slipway/internal/platform/sandbox"
)

// Limits of one build: bytes sent and received, and concurrent connections.
const (
	maxTransfer = 4 << 30
	maxConns    = 512
)

// Network opens a sandbox's only network access: our proxy, on a socket in dir, which only we may enter.
//
// refused is called once for each address that the proxy refuses.
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

// maxRefusals caps the refused addresses that a build's log names.
const maxRefusals = 20

// once returns a function that reports each refused address only once, as a sentence.
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
		case errors.Is(err, egress.ErrBusy):
			why = fmt.Sprintf("Connection to %s refused: the build has too many connections open", addr)
		case errors.As(err, new(*net.DNSError)):
			why = fmt.Sprintf("Connection to %s failed: its name could not be looked up", addr)
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
