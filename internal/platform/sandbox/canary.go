package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"slipway/internal/platform/sandbox/inside"
)

// Attempt is one forbidden action and its result.
type Attempt = inside.Attempt

// Canary runs a sandbox that tries the forbidden actions against bait on this host, as the given uid (ignored unless we
// are root), and returns the result of each. Unless all are refused, builds must not run here.
func (b *Bubblewrap) Canary(ctx context.Context, uid int) ([]Attempt, error) {
	lis, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	defer lis.Close()
	t := inside.Bait{
		Pid: os.Getpid(), Port: lis.Addr().(*net.TCPAddr).Port, Spaces: inside.Spaces(),
		Abstract: "@slipway-canary-" + newID(), Env: "canary-" + newID(),
	}
	abstract, err := net.Listen("unix", t.Abstract)
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	defer abstract.Close()
	scratch, err := os.MkdirTemp(b.Dir, "canary-")
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	defer os.RemoveAll(scratch)
	work := filepath.Join(scratch, "work")
	t.Other = filepath.Join(scratch, "other", "secret")
	for _, dir := range []string{work, filepath.Dir(t.Other)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("canary: %w", err)
		}
	}
	// unsynced: scratch
	if err := os.WriteFile(t.Other, []byte("other site"), 0o644); err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	if err := Own(work, uid); err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	// A process with the secret in its environment, which a sandbox could reach only by its pid.
	holder := exec.CommandContext(ctx, b.Self, inside.Name, "hold")
	holder.Env = []string{"SLIPWAY_CANARY=" + t.Env}
	in, err := holder.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	if err := holder.Start(); err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	defer func() { _, _ = in.Close(), holder.Wait() }()
	t.Pid = holder.Process.Pid

	// It runs behind a network as builds do, with a proxy that refuses everything.
	proxy, socket, err := Listen(scratch, "proxy")
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	defer proxy.Close()
	// uncaught: closes connections
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	told, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	var out, complaint bytes.Buffer
	res, err := b.Run(ctx, Command{
		Argv:    []string{inside.Self, inside.Name, inside.CanaryArg, string(told)},
		Work:    work,
		UID:     uid,
		Network: Network{Proxy: socket},
		Limits:  Limits{Wall: 20 * time.Second, Memory: 256 << 20},
		Stdout:  &out,
		Stderr:  &complaint,
	})
	if err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	var got []Attempt
	if !res.OK() {
		return nil, fmt.Errorf("canary: %s: %s", res, strings.TrimSpace(complaint.String()))
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		return nil, fmt.Errorf("canary: %w", err)
	}
	return got, nil
}
