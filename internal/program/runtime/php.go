package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/build/phpversion"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/php"
	"slipway/internal/program/wpcli"
)

// sessions is the folder of a site's storage that has PHP's sessions.
const sessions = "@sessions"

// php makes a command of PHP-FPM. It listens on a unix socket that we have opened in a
// directory of ours: nothing inside can put another socket in its place, and who connects
// before PHP-FPM is up waits in its queue instead of asking again.
func (p *Processes) php(ctx context.Context, version phpversion.Version, s Spec, x *process, cmd *sandbox.Command, dir string) error {
	cmd.System = x.root.Tree()
	cmd.Binds = slices.Concat(cmd.Binds, version.Binds(), x.root.Binds())
	if len(s.Argv) > 0 || s.Shell != "" {
		return p.phpCommand(ctx, version, s, cmd, dir)
	}
	scratch := filepath.Join(cmd.Work, ".php")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return fmt.Errorf("make scratch space: %w", err)
	}
	if err := sandbox.Own(scratch, cmd.UID); err != nil {
		return err
	}
	memory, err := p.redis(s, x, cmd, dir)
	if err != nil {
		return err
	}
	pool := php.Pool{Memory: memory, Scratch: path.Join(sandbox.Root, ".php")}
	if p.c.Storage != "" && !s.Isolated { // sessions outlive sleep and deployments
		own, err := p.storage(s.store(), sessions, nil, "", cmd.UID)
		if err != nil {
			return err
		}
		pool.Sessions = "/var/lib/php/sessions"
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: own, Target: pool.Sessions, Write: true, Stored: true})
	}
	if err := phpFiles(pool.Files(), cmd, dir); err != nil {
		return err
	}
	if x.socket, err = listen(dir); err != nil {
		return err
	}
	cmd.Argv, cmd.Listener = php.Argv(version), x.socket.inside
	cmd.Env = append(cmd.Env, php.Env()...)
	return nil
}

// phpFiles puts the files of PHP's configuration where PHP finds them inside.
func phpFiles(files map[string]string, cmd *sandbox.Command, dir string) error {
	for at, text := range files {
		name := filepath.Join(dir, filepath.Base(at))
		// unsynced: each start of the program writes it
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write PHP's configuration: %w", err)
		}
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: name, Target: at})
	}
	return nil
}

// phpInside is where a command finds the PHP of its specification, by the name php.
const phpInside = "/opt/slipway-php"

// phpCommand puts PHP before what else is in a command's PATH, with the web's configuration and the memory of the site.
func (p *Processes) phpCommand(ctx context.Context, v phpversion.Version, s Spec, cmd *sandbox.Command, dir string) error {
	if v.CLI == "" {
		return fault.New(fault.Unavailable, "php_missing", "PHP's command line program is not installed on this server",
			"the operator can install it (apt-get install php-cli)")
	}
	bin := filepath.Join(dir, "php")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return fmt.Errorf("prepare PHP: %w", err)
	}
	if err := os.Symlink(v.CLI, filepath.Join(bin, "php")); err != nil {
		return fmt.Errorf("prepare PHP: %w", err)
	}
	cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: bin, Target: phpInside})
	if err := phpFiles(php.CommandFiles(s.Limits.Memory), cmd, dir); err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, php.CommandEnv())
	if err := p.wpCLI(ctx, s, cmd, bin); err != nil {
		return err
	}
	for i, kv := range cmd.Env {
		if list, ok := strings.CutPrefix(kv, "PATH="); ok {
			cmd.Env[i] = "PATH=" + phpInside + ":" + list
		}
	}
	return nil
}

// wpCLI puts wp-cli beside PHP in bin. A WordPress has it in any case: where it can't be had, a wp that says why.
func (p *Processes) wpCLI(ctx context.Context, s Spec, cmd *sandbox.Command, bin string) error {
	if p.c.WPCLI == nil {
		return nil
	}
	at := path.Join(phpInside, wpcli.Name)
	wp, text := p.c.WPCLI.Host(), ""
	if s.PHP.WordPress != "" {
		if wp == "" {
			var err error
			if wp, err = p.c.WPCLI.Program(ctx); err != nil {
				f := fault.As(err)
				if f == nil {
					return err
				}
				text = "#!/bin/sh\ncat >&2 <<'EOF'\n" + f.Message + ": " + f.Details + "\nEOF\nexit 69\n" // EX_UNAVAILABLE
			}
		}
		config := "path: " + path.Join(AppDir, s.PHP.WordPress) + "\n"
		// unsynced: each start of the program writes it
		if err := os.WriteFile(filepath.Join(bin, "wp-cli.yml"), []byte(config), 0o644); err != nil {
			return fmt.Errorf("prepare wp-cli: %w", err)
		}
		cmd.Env = append(cmd.Env, "WP_CLI_CONFIG_PATH="+path.Join(phpInside, "wp-cli.yml"), "WP_CLI_DISABLE_AUTO_CHECK_UPDATE=1")
	}
	if wp == "" && text == "" {
		return nil
	}
	// An empty file is the place of the program.
	// unsynced: each start of the program writes it
	if err := os.WriteFile(filepath.Join(bin, wpcli.Name), []byte(text), 0o755); err != nil {
		return fmt.Errorf("prepare wp-cli: %w", err)
	}
	if wp != "" {
		cmd.Binds = append(cmd.Binds, sandbox.Bind{Source: wp, Target: at})
	}
	return nil
}

// socket is a unix socket of ours that a program listens on.
type socket struct {
	inside *os.File // what the program inherits

	mu  sync.RWMutex // guards dir: while somebody connects by way of it, its number is not another's
	dir *os.File     // its directory
}

const socketName = "program.sock"

func listen(dir string) (*socket, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	s := &socket{dir: d}
	l, err := net.ListenUnix("unix", s.address())
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	s.inside, err = l.File()
	_ = l.Close()
	if err != nil {
		_ = d.Close()
		return nil, fmt.Errorf("open socket: %w", err)
	}
	return s, nil
}

// address is by way of the directory's descriptor: a socket's own path may be too long.
func (s *socket) address() *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: filepath.Join("/proc/self/fd", strconv.Itoa(int(s.dir.Fd())), socketName)}
}

// started gives our copy of the listening end up: from now on who connects after the
// program's end is refused.
func (s *socket) started() {
	if s != nil {
		_ = s.inside.Close()
	}
}

func (s *socket) close() {
	if s != nil {
		_ = s.inside.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		_ = s.dir.Close()
	}
}

// dial connects. While the queue is full a unix socket says so at once; it is asked again.
func (s *socket) dial(ctx context.Context) (net.Conn, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		c, err := s.connect()
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
			return nil, ErrNotListening
		case !errors.Is(err, unix.EAGAIN):
			return nil, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// connect never blocks: a unix socket's queue has room or not.
func (s *socket) connect() (net.Conn, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return net.DialUnix("unix", nil, s.address())
}
