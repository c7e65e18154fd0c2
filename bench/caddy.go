package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"slipway/e2e/world"
)

// caddy is a baseline for static files, built from the separate module bench/caddy.
type caddy struct {
	addr string
	cmd  *exec.Cmd
}

// startCaddy serves root with the certificate in certs.
func startCaddy(ctx context.Context, dir, certs, host, root string) (*caddy, error) {
	program := filepath.Join(dir, "caddy")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(world.Root(), "bench", "caddy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build caddy: %w: %s", err, out)
	}
	ports, err := world.FreePorts(1)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(ports[0])
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "Caddyfile")
	text := fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	servers {
		protocols h1 h2 h3
	}
}
https://%s:%s {
	bind 127.0.0.1
	tls %s/certificate.pem %s/key.pem
	root * %s
	file_server
}
`, host, port, certs, certs, root)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "caddy.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	c := &caddy{addr: ports[0], cmd: exec.Command(program, "run", "--config", conf, "--adapter", "caddyfile")}
	c.cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := answers(ctx, c.addr); err != nil {
		c.stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("start caddy: %w: %s", err, said)
	}
	return c, nil
}

func (c *caddy) stop() {
	c.cmd.Process.Signal(syscall.SIGTERM)
	c.cmd.Wait() // the exit status of a stopped process doesn't matter
}

// answers waits until a server listens on an address.
func answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return world.Until(ctx, 5*time.Millisecond, func() (bool, error) {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err == nil, err
	})
}
