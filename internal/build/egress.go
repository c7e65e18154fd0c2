package build

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"slipway/internal/egress"
	"slipway/internal/sandbox"
)

// maxTransfer is what one build may send and receive.
const maxTransfer = 4 << 30

// Network opens the only way out of one sandbox: our proxy, on a socket in dir, which is
// ours and closed to others.
func Network(ctx context.Context, out *egress.Egress, dir string) (sandbox.Network, func(), error) {
	name := filepath.Join(dir, "egress.sock")
	l, err := net.Listen("unix", name)
	if err != nil {
		return sandbox.Network{}, nil, fmt.Errorf("open the build's way out: %w", err)
	}
	if err := os.Chmod(name, 0o666); err != nil {
		l.Close()
		return sandbox.Network{}, nil, fmt.Errorf("open the build's way out: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan struct{})
	go func() {
		defer close(served)
		out.Proxy(egress.ProxyConfig{Quota: maxTransfer}).Serve(ctx, l)
	}()
	return sandbox.Network{Proxy: name}, func() { cancel(); <-served }, nil
}
