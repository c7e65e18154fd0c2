// Package wpcli owns wp-cli, the program wp of WordPress sites' commands: the operator's own, the host's, or the release that is
// downloaded once and kept after its checksum was compared.
//
// The package never runs it: what a command may do is the sandbox's business.
package wpcli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/panics"
)

// Name is the program's name in the PATH of a command.
const Name = "wp"

// The release that sites have unless the operator names another, and its SHA-512.
const (
	release    = "https://github.com/wp-cli/wp-cli/releases/download/v2.12.0/wp-cli-2.12.0.phar"
	releaseSum = "be928f6b8ca1e8dfb9d2f4b75a13aa4aee0896f8a9a0a1c45cd5d2c98605e617" +
		"2e6d014dda2e27f88c98befc16c040cbb2bd1bfa121510ea5cdf5f6a30fe8832"
)

const (
	maxBytes  = 64 << 20
	fetchTime = 5 * time.Minute
	patience  = 20 * time.Second // of one command
	askAgain  = time.Minute      // after a download that failed
)

// Config says where wp-cli comes from.
type Config struct {
	// Source is the path of a program, or https://….phar#sha256=…. Optional: empty means the host's below /usr, else the release.
	Source string
	Dir    string       // ours, for what is downloaded. Required unless Source is a path.
	Out    *http.Client // Required unless Source is a path.
	Log    *slog.Logger // Optional.
}

// CheckSource says in words what is wrong with the operator's setting.
func CheckSource(source string) error {
	switch {
	case source == "":
		return nil
	case strings.HasPrefix(source, "https://"):
		if _, sum, ok := strings.Cut(source, "#sha256="); !ok || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
			return errors.New("the address must end with its checksum, #sha256= and 64 hexadecimal digits")
		}
		return nil
	}
	if info, err := os.Stat(source); !filepath.IsAbs(source) || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("give the absolute path of a program, or https://….phar#sha256=…")
	}
	return nil
}

// CLI finds wp-cli. It is safe for concurrent use.
type CLI struct {
	c       Config
	address string
	sum     string
	digest  func() hash.Hash

	mu       sync.Mutex    // guards what follows
	fetching chan struct{} // closed at the end of the download that runs; nil: none does
	ready    string        // path of the file that was checked
	failed   error         // of the last download
	failedAt time.Time
}

// New returns a CLI. It downloads nothing yet.
func New(c Config) *CLI {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	x := &CLI{c: c, address: release, sum: releaseSum, digest: sha512.New}
	if address, sum, ok := strings.Cut(c.Source, "#sha256="); ok {
		x.address, x.sum, x.digest = address, sum, sha256.New
	}
	return x
}

// Host returns the operator's program, or the host's if it is below /usr, which sandboxes see; empty: there is neither.
func (x *CLI) Host() string {
	if filepath.IsAbs(x.c.Source) {
		return x.c.Source
	}
	if x.c.Source != "" {
		return ""
	}
	if wp, err := exec.LookPath(Name); err == nil && strings.HasPrefix(wp, "/usr/") {
		return wp
	}
	return ""
}

// Program returns the path of wp-cli, and downloads it where there is none. Its error is a fault that says what to do.
func (x *CLI) Program(ctx context.Context) (string, error) {
	if wp := x.Host(); wp != "" {
		return wp, nil
	}
	x.mu.Lock()
	if x.ready != "" {
		if _, err := os.Stat(x.ready); err != nil {
			x.ready = "" // somebody deleted it
		}
	}
	if x.ready != "" || x.failed != nil && time.Since(x.failedAt) < askAgain {
		defer x.mu.Unlock()
		return x.ready, x.failed
	}
	if x.fetching == nil {
		done := make(chan struct{})
		x.fetching = done
		panics.Go(func() { x.fetch(done) })
	}
	done := x.fetching
	x.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.ready, x.failed
	case <-late.C:
		return "", unavailable("it is still being downloaded; try again in a minute")
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func unavailable(details string) error {
	return fault.New(fault.Unavailable, "wp_cli_unavailable", "wp-cli is not available on this server", details)
}

// fetch makes the file ready, and closes done.
func (x *CLI) fetch(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), fetchTime)
	defer cancel()
	var at string
	err := panics.Call(func() (err error) {
		at, err = x.kept(ctx)
		return err
	})
	if err != nil {
		x.c.Log.Warn("wp-cli not downloaded", "err", err)
		// Sites read it: not the operator's whole address, nor errors of the network, which repeat it.
		host := "its server"
		if u, err := url.Parse(x.address); err == nil && u.Host != "" {
			host = u.Host
		}
		var told refusal
		if !errors.As(err, &told) {
			told = "it can't be reached"
		}
		err = unavailable(fmt.Sprintf("it could not be downloaded from %s (%s); the operator can download it elsewhere and name the file "+
			"with --wp-cli", host, told))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ready, x.failed, x.failedAt, x.fetching = at, err, time.Now(), nil
	close(done)
}

// kept returns the file if it is whole, and downloads it otherwise.
func (x *CLI) kept(ctx context.Context) (string, error) {
	at := filepath.Join(x.c.Dir, "wp-cli-"+x.sum[:16]+".phar")
	if f, err := os.Open(at); err == nil {
		err = x.copy(io.Discard, f)
		_ = f.Close()
		if err == nil {
			return at, nil
		}
	}
	if err := os.MkdirAll(x.c.Dir, 0o711); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.address, nil)
	if err != nil {
		return "", err
	}
	resp, err := x.c.Out.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", refusal(fmt.Sprintf("it answers with the status %d", resp.StatusCode))
	}
	f, err := os.CreateTemp(x.c.Dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(f.Name())
	if err := errors.Join(x.copy(f, resp.Body), f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return at, os.Rename(f.Name(), at)
}

// refusal is why a download isn't used, in words for anybody.
type refusal string

func (r refusal) Error() string { return string(r) }

// copy copies r to w and fails unless its checksum is the wanted one.
func (x *CLI) copy(w io.Writer, r io.Reader) error {
	digest := x.digest()
	n, err := io.Copy(io.MultiWriter(w, digest), io.LimitReader(r, maxBytes+1))
	switch {
	case err != nil:
		return err
	case n > maxBytes:
		return refusal("the file is too large")
	case hex.EncodeToString(digest.Sum(nil)) != x.sum:
		return refusal("the checksum of the file is wrong")
	}
	return nil
}
