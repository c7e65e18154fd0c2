package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const email = "you@example.test"

// memory holds what a second start must know of the first. It holds the key, so its file is
// for its owner's eyes alone.
type memory struct {
	Email    string `json:"email"`
	Password string `json:"password"`
	Key      string `json:"key"`
	Request  string `json:"request"` // Idempotency-Key of the site's creation
	Site     string `json:"site"`
}

func (t *try) remember() error {
	text, err := json.MarshalIndent(t.memory, "", "  ")
	if err != nil {
		return err
	}
	next := t.path("memory.json.next")
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, t.path("memory.json"))
}

func (t *try) recall() error {
	text, err := os.ReadFile(t.path("memory.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &t.memory)
}

// portsAreFree says in one line which address somebody else has, before anything is made.
func (t *try) portsAreFree() error {
	for variable, addr := range map[string]string{"SLIPWAY_LISTEN": t.listen, "SLIPWAY_EDGE_HTTP": t.http, "SLIPWAY_EDGE_HTTPS": t.https} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf(
				"%s can't be had (%w); stop what uses it, or choose another: %s=127.0.0.1:PORT make run",
				addr,
				reason(err),
				variable,
			)
		}
		l.Close()
	}
	return nil
}

func reason(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// prepare makes the repository, the user and the key, each only if it isn't there yet.
func (t *try) prepare(example string) error {
	if err := os.MkdirAll(t.path(""), 0o700); err != nil {
		return err
	}
	if err := t.recall(); err != nil {
		return fmt.Errorf("%s: %w", t.path("memory.json"), err)
	}
	if err := t.repository(example); err != nil {
		return err
	}
	if t.memory.Key != "" {
		return nil
	}
	done := t.step("created a first user and key")
	t.memory.Email = email
	t.memory.Request = "try-" + rand.Text()
	if t.memory.Password == "" {
		t.memory.Password = rand.Text()
		if err := t.remember(); err != nil { // first, for a user without a password is of no use
			return err
		}
		if _, err := t.slipway(t.memory.Password, "user", "create", "--email", t.memory.Email, "--admin"); err != nil {
			return err
		}
	}
	key, err := t.slipway("", "key", "create", "--user", t.memory.Email, "--name", "make run")
	if err != nil {
		return err
	}
	t.memory.Key = key
	if err := t.remember(); err != nil {
		return err
	}
	done()
	return nil
}

// slipway runs one command of the product on the data directory.
func (t *try) slipway(stdin string, args ...string) (string, error) {
	cmd := exec.Command(t.binary, append(args, "--data-dir", t.data)...)
	cmd.Stdin = strings.NewReader(stdin + "\n")
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
}

// repository makes a Git repository out of the example; afterwards it is the user's own.
func (t *try) repository(example string) error {
	dir := t.path("you/hello")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	done := t.step("created a Git repository of %s in %s", example, dir)
	making := dir + ".making"
	if err := errors.Join(os.RemoveAll(making), os.MkdirAll(filepath.Dir(making), 0o700)); err != nil {
		return err
	}
	if err := os.CopyFS(making, os.DirFS(example)); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"config", "user.name", "You"},
		{"config", "user.email", email},
		{"add", "--all"},
		{"-c", "commit.gpgsign=false", "commit", "--quiet", "--no-verify", "--message", "The first site"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = making
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
	}
	if err := os.Rename(making, dir); err != nil {
		return err
	}
	done()
	return nil
}
