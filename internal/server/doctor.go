package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/blob"
	"slipway/internal/fault"
	"slipway/internal/job"
	"slipway/internal/sandbox"
)

// check is one line of what doctor finds.
type check struct {
	name     string
	ok       bool
	required bool // nothing works without it; otherwise something is missing that the text names
	text     string
}

// Doctor prints what of the host's abilities is there and what is missing, and ends with
// an error when something required is.
func Doctor(ctx context.Context, s Store, m SMTP, c Certificates, out io.Writer) error {
	checks := append(examine(ctx, s, m), c.check())
	width, bad := 0, 0
	for _, c := range checks {
		width = max(width, len(c.name))
	}
	color := isTerminal(out)
	for _, c := range checks {
		mark, paint := "ok     ", "32"
		switch {
		case !c.ok && c.required:
			mark, paint = "missing", "31"
			bad++
		case !c.ok:
			mark, paint = "limited", "33"
		}
		if color {
			mark = "\x1b[" + paint + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(out, "%s  %-*s  %s\n", mark, width, c.name, c.text)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d requirements are not met", bad, len(checks))
	}
	return nil
}

// examine checks everything once.
func examine(ctx context.Context, s Store, m SMTP) []check {
	checks := []check{dataDir(s), ownDatabase(ctx, s), files(ctx, s), jobs(ctx, s), gitTool(ctx), loopback(), mailServer(ctx, m), databaseServer(ctx, s), phpTools(ctx)}
	for _, c := range sandbox.Probe(ctx, sandbox.Config{Dir: scratch(s), Log: quiet()}, probeUID) {
		// Without a sandbox sites that need no build still work.
		checks = append(checks, check{"builds: " + c.Name, c.OK || !c.Required, false, c.Detail})
	}
	return checks
}

func scratch(s Store) string {
	dir, err := filepath.Abs(s.path("builds", "doctor"))
	if err != nil {
		return s.path("builds", "doctor")
	}
	return dir
}

func dataDir(s Store) check {
	c := check{name: "data directory", required: true}
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		c.text = err.Error()
		return c
	}
	f, err := os.CreateTemp(s.DataDir, ".doctor-*")
	if err != nil {
		c.text = err.Error()
		return c
	}
	f.Close()
	os.Remove(f.Name())
	_, free, err := diskSpace(s.DataDir)
	if err != nil {
		c.text = err.Error()
		return c
	}
	c.ok, c.text = true, fmt.Sprintf("%s can be written; %d MiB are free", s.DataDir, free>>20)
	if free < 1<<30 {
		c.ok, c.required = false, false
		c.text += ", which is little"
	}
	return c
}

func ownDatabase(ctx context.Context, s Store) check {
	c := check{name: "database", required: true}
	d, _, err := s.open(ctx, quiet())
	if err != nil {
		c.text = err.Error()
		return c
	}
	defer d.Close()
	if err := d.Integrity(ctx); err != nil {
		c.text = err.Error()
		return c
	}
	kind := "PostgreSQL"
	if d.Single() {
		kind = "SQLite"
	}
	c.ok, c.text = true, kind+" responds and passes its integrity check"
	return c
}

// files reports whether the store of files can be used.
func files(ctx context.Context, s Store) check {
	c := check{name: "files", required: true}
	if err := s.checkBlobs(); err != nil {
		c.text = "--blobs: " + err.Error()
		return c
	}
	if !s.remote() {
		c.ok, c.text = true, "stored in "+s.blobDir()
		return c
	}
	elsewhere := s // the cache belongs to the process that serves
	dir, err := os.MkdirTemp("", "slipway-doctor-")
	if err != nil {
		c.text = err.Error()
		return c
	}
	defer os.RemoveAll(dir)
	elsewhere.DataDir = dir
	store, err := elsewhere.blobs(nil, quiet())
	if err != nil {
		c.text = err.Error()
		return c
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := store.Probe(ctx); err != nil {
		c.text = err.Error()
		return c
	}
	where, _ := blob.ParseS3(s.Blobs, os.Getenv)
	c.ok, c.text = true, where.String()+" answers"
	return c
}

// jobs reports kinds of jobs that wait although they are due, because no running node has
// a handler for them: an upgrade that stopped half-way, or one that was taken back.
func jobs(ctx context.Context, s Store) check {
	c := check{name: "jobs"}
	d, _, err := s.open(ctx, quiet())
	if err != nil {
		c.text = err.Error()
		return c
	}
	defer d.Close()
	list, err := job.Unknown(ctx, d)
	if err != nil {
		c.text = err.Error()
		return c
	}
	if len(list) == 0 {
		c.ok, c.text = true, "every due job has a running node that knows its kind"
		return c
	}
	var kinds []string
	for _, w := range list {
		kinds = append(kinds, fmt.Sprintf("%d of kind %s since %s", w.Jobs, w.Kind, w.Since))
	}
	c.text = "jobs wait for a node of another version: " + strings.Join(kinds, ", ")
	return c
}

func gitTool(ctx context.Context) check {
	c := check{name: "git", required: true}
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		c.text = "git is not installed: apt-get install git"
		return c
	}
	c.ok, c.text = true, strings.TrimSpace(string(out))
	return c
}

func loopback() check {
	c := check{name: "loopback", required: true}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.text = "no port can be opened on 127.0.0.1: " + err.Error()
		return c
	}
	l.Close()
	c.ok, c.text = true, "ports can be opened on 127.0.0.1"
	return c
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// sentence is a fault as one line of a terminal: what is wrong, and what is allowed.
func sentence(err error) error {
	if f := fault.As(err); f != nil && f.Details != "" {
		return errors.New(f.Message + ": " + f.Details)
	}
	return err
}
