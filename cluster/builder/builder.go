// Package builder owns builds in pods: the control plane's side, which sends a pod its order and source and receives
// the result, and the side in the pod, which runs the build with the same code as a single machine. The control plane's
// side doesn't trust the pod.
package builder

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"slipway/internal/build/build"
	"slipway/internal/build/buildlog"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/lazyregexp"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

// Pods creates pods for builds. It is implemented by *kube.Engine; tests use it without a cluster.
type Pods interface {
	// StartBuild creates the pod of a build. The cluster ends it after limit.
	StartBuild(ctx context.Context, s runtime.Spec, uid int, limit time.Duration) (runtime.Program, error)
}

type Config struct {
	Pods Pods
	// CAFile is a PEM file of less than 900 KiB with roots that builds trust besides their own. Optional.
	CAFile string
	Log    *slog.Logger // Optional.
}

// Builder runs builds in pods. It is safe for concurrent use.
type Builder struct{ c Config }

func New(c Config) *Builder {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Builder{c}
}

const (
	entryFile = "/slipway/build"
	// uidOffset is the difference between the UIDs of a site and of its builds. Processes are limited per UID and node,
	// and a build must not use up those of the site's program.
	uidOffset = 1 << 20
	// ownMemory, ownPids and ownDisk are the pod's needs besides the commands'.
	ownMemory = 96 << 20
	ownPids   = 64
	ownDisk   = 256 << 20
	// aroundStages is the time for sending source, tools and artifact, in addition to the two stages' limits.
	aroundStages = 20 * time.Minute
	// attempts caps the attempts of a build whose pods the cluster loses.
	attempts = 3
	// maxLines caps the log lines accepted, slightly more than a pod sends.
	maxLines = 110_000
	// endPatience limits the wait for a pod's end after its connection broke.
	endPatience = 5 * time.Minute
)

// Build runs a build in a pod. If the cluster loses the pod, it starts again in another.
func (b *Builder) Build(ctx context.Context, t build.Task, r build.Report) (build.Left, error) {
	h := &heard{task: t, to: r, hide: buildlog.NewRedactor(values(t.Secrets))}
	h.enter("prepare")
	for n := 1; ; n++ {
		left, err := b.try(ctx, t, h)
		if errors.Is(err, errLate) {
			return left, t.Ended(h.stage, sandbox.Timeout)
		}
		var lost *errLost
		if !errors.As(err, &lost) {
			return left, err
		}
		b.c.Log.WarnContext(ctx, "pod of a build lost", "site", t.Site, "build", t.ID, "err", err)
		if n == attempts {
			return left, fault.New(fault.Unavailable, "build_lost", "The build was lost by the cluster "+fmt.Sprint(n)+" times",
				lost.why+"; redeploy in a few minutes")
		}
		r.Line("warn", "The cluster has lost the build: "+lost.why+". It starts again.", "")
		if err := empty(t.Output); err != nil {
			return left, err
		}
	}
}

func values(secrets []build.Secret) (all []string) {
	for _, s := range secrets {
		all = append(all, s.Value)
	}
	return all
}

// empty deletes the files of an attempt.
func empty(dir string) error {
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
}

// errLate means that the build exceeded its total time.
var errLate = errors.New("the build took too long")

// errLost means that the cluster ended the pod.
type errLost struct{ why string }

func (e *errLost) Error() string { return "the pod of the build was lost: " + e.why }

// try runs the build in one pod.
func (b *Builder) try(ctx context.Context, t build.Task, h *heard) (left build.Left, err error) {
	o := order{Job: t.Job}
	if o.Cert, o.Key, err = newCert(); err != nil {
		return left, err
	}
	config, err := clientTLS(o.Cert)
	if err != nil {
		return left, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return left, err
	}
	files := []runtime.File{{Path: orderFile, Text: text}}
	if b.c.CAFile != "" {
		roots, err := os.ReadFile(b.c.CAFile)
		if err != nil {
			return left, fmt.Errorf("read the operator's roots: %w", err)
		}
		files = append(files, runtime.File{Path: rootsFile, Text: roots})
	}
	l := t.Limits
	limit := 2*l.Wall + aroundStages
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	p, err := b.c.Pods.StartBuild(ctx, runtime.Spec{
		ID: t.ID, Site: t.Site, Owner: t.Owner, Argv: []string{entryFile}, Files: files,
		Limits: runtime.Limits{Memory: l.Memory + ownMemory, CPUs: l.CPU, Pids: l.Pids + ownPids, Disk: l.Disk + ownDisk},
		Egress: true,
		Output: func(stream, line string) {
			b.c.Log.Debug("pod of a build", "build", t.ID, "stream", stream, "line", line)
		},
	}, t.UID+uidOffset, limit)
	if err != nil {
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
		b.c.Log.WarnContext(ctx, "pod of a build not started", "site", t.Site, "build", t.ID, "err", err)
		return left, fault.New(fault.Unavailable, "build_not_started", "The build can't be started", err.Error())
	}
	defer func() {
		if err == nil {
			go p.Stop(0) // its work is done
		} else {
			p.Stop(0)
		}
	}()
	c, err := dial(ctx, p)
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		secure := tls.Client(c, config)
		left, err = talk(secure, t, h)
		if said := fault.As(err); err == nil || said != nil {
			b.keep(ctx, secure, t, h)
			if said != nil {
				return left, said
			}
			return left, nil
		}
	}
	if ctx.Err() != nil {
		return left, context.Cause(ctx)
	}
	var large errTooLarge
	var internal *errInside
	var broken *errBroken
	switch {
	case errors.As(err, &large):
		return left, fault.New(fault.Invalid, build.CodeFailed, "The build's output is too large", large.why)
	case errors.As(err, &internal):
		return left, internal
	case disk.Full(err):
		return left, &errInside{err.Error()}
	case c == nil, errors.As(err, &broken):
		if c != nil {
			c.Close()
		}
		return left, b.ended(ctx, p, t, h, err)
	}
	b.c.Log.InfoContext(ctx, "output of a build refused", "site", t.Site, "build", t.ID, "err", err)
	return left, unreadable()
}

// dial connects to the build in a pod once it listens.
func dial(ctx context.Context, p runtime.Program) (net.Conn, error) {
	for {
		c, err := p.Dial(ctx)
		if err == nil {
			return c, nil
		}
		select {
		case <-p.Done():
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ended returns why a pod ended after its connection broke.
func (b *Builder) ended(ctx context.Context, p runtime.Program, t build.Task, h *heard, broke error) error {
	select {
	case <-p.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(endPatience):
		return &errLost{"it no longer answers"}
	}
	e := p.Exit()
	b.c.Log.InfoContext(ctx, "pod of a build ended early", "build", t.ID, "reason", e.Reason, "code", e.Code, "err", broke)
	switch {
	case e.OutOfMemory:
		return t.Ended(h.stage, sandbox.OutOfMemory)
	case e.Reason == string(sandbox.DiskFull):
		return t.Ended(h.stage, sandbox.DiskFull)
	case strings.HasPrefix(e.Reason, "DeadlineExceeded"):
		return t.Ended(h.stage, sandbox.Timeout)
	case strings.HasPrefix(e.Reason, "exit code"):
		return &errInside{"it has ended (" + e.Reason + "): " + broke.Error()}
	case strings.HasPrefix(e.Reason, "ended by signal"):
		return fault.New(fault.Invalid, build.CodeFailed, "The build did not finish",
			"the process that runs its commands has ended ("+e.Reason+"); look for a command that ends other processes")
	case e.Code == 125:
		return fault.New(fault.Unavailable, "build_not_started", "The build can't be started", e.Reason)
	}
	return &errLost{cmp.Or(e.Reason, "the cluster gave no reason")}
}

// talk sends the source and receives the reports and the artifact.
func talk(c net.Conn, t build.Task, h *heard) (left build.Left, err error) {
	source, err := os.OpenRoot(t.Source)
	if err != nil {
		return left, &errInside{"read the source: " + err.Error()}
	}
	defer source.Close()
	send := func(kind byte, p []byte) error {
		if err := writeFrame(c, kind, p); err != nil {
			return &errBroken{err}
		}
		return nil
	}
	if err := pack(source, treeWriter{send}, nil, nil); err != nil {
		return left, err
	}
	if err := send(frameEnd, nil); err != nil {
		return left, err
	}
	if kept, err := os.Open(t.Cache); err == nil { // it doesn't exist before the first build
		_, err = io.Copy(treeWriter{send}, kept)
		kept.Close()
		if err != nil {
			return left, err
		}
	}
	if err := send(frameEnd, nil); err != nil {
		return left, err
	}
	next := func() (byte, []byte, error) { return h.next(c) }
	kind, first, err := next()
	if err != nil {
		return left, err
	}
	if kind != frameTree && kind != frameEnd {
		return left, fmt.Errorf("the pod says %q where files are expected", kind)
	}
	root, err := os.OpenRoot(t.Output)
	if err != nil {
		return left, &errInside{"open the output: " + err.Error()}
	}
	defer root.Close()
	files := &treeReader{next: next, rest: first}
	if err := unpack(files, root, t.Limits.Disk, t.Limits.Files); err != nil {
		return left, err
	}
	if err := json.Unmarshal(files.end, &left); err != nil {
		return left, unreadable()
	}
	return left, nil
}

// maxCache caps the cache of a site's branch in bytes, as on a single machine.
const maxCache = 4 << 30

// keep receives the cache for the next build. An error isn't fatal, since the next build just takes longer.
func (b *Builder) keep(ctx context.Context, c net.Conn, t build.Task, h *heard) {
	err := func() error {
		f, err := os.CreateTemp(filepath.Dir(t.Cache), "pack-")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		defer f.Close()
		n, err := io.Copy(f, io.LimitReader(&treeReader{next: func() (byte, []byte, error) { return h.next(c) }}, maxCache+1))
		if err == nil && n > maxCache {
			err = fmt.Errorf("more than %d GiB", maxCache>>30)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		return os.Rename(f.Name(), t.Cache)
	}()
	if err != nil && ctx.Err() == nil {
		b.c.Log.WarnContext(ctx, "build cache not saved", "site", t.Site, "build", t.ID, "err", err)
	}
}

// unreadable returns the fault for malformed output of a pod.
func unreadable() error {
	return fault.New(fault.Invalid, build.CodeFailed, "The build's output can't be read",
		"it has a file whose name can't be used, or the build has changed what sends it")
}

// errBroken means that the connection ended early.
type errBroken struct{ error }

func (e *errBroken) Unwrap() error { return e.error }

// errInside is an error for the operator.
type errInside struct{ why string }

func (e *errInside) Error() string { return "build in a pod: " + e.why }

// heard receives a pod's reports, limits them and passes them on.
type heard struct {
	task  build.Task
	to    build.Report
	hide  *buildlog.Redactor
	stage string // the latest stage
	lines int
}

// next returns the next frame that isn't a report.
func (h *heard) next(c io.Reader) (kind byte, p []byte, err error) {
	for {
		if kind, p, err = readFrame(c); errors.Is(err, errFrame) {
			return 0, nil, err
		} else if err != nil {
			return 0, nil, &errBroken{noEOF(err)}
		}
		switch kind {
		case frameLine:
			var l line
			if json.Unmarshal(p, &l) == nil {
				h.line(l)
			}
		case frameGo:
			h.enter(string(p))
		case frameSkip:
			if slices.Contains(stages, string(p)) {
				h.to.Skip(string(p))
			}
		case frameFail:
			return 0, nil, failed(p)
		default:
			return kind, p, nil
		}
	}
}

// stages lists the stages in order. A pod enters each once.
var stages = []string{"prepare", "install", "build", "publish"}

func (h *heard) enter(stage string) {
	if slices.Index(stages, stage) > slices.Index(stages, h.stage) {
		h.stage = stage
		h.to.Enter(stage)
	}
}

var (
	levels  = []string{"debug", "info", "warn", "error"}
	colored = lazyregexp.New(`^(?:[^\x00-\x08\x0a-\x1f\x7f-\x{9f}]|\x1b\[[0-9;:]*m)*$`)
	code    = lazyregexp.New(`^[a-z][a-z0-9_]{0,63}$`)
)

// line passes on a log line without secrets and control characters.
func (h *heard) line(l line) {
	h.lines++
	if h.lines > maxLines || !slices.Contains(levels, l.Level) {
		return
	}
	if !colored.MatchString(l.Raw) {
		l.Raw = ""
	}
	h.to.Line(l.Level, h.hide.Redact(plain(l.Message)), h.hide.Redact(l.Raw))
}

// plain removes characters that logs don't show.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// maxWords caps a failure's message in bytes.
const maxWords = 4 << 10

// failed decodes a pod's error.
func failed(p []byte) error {
	var f failure
	if err := json.Unmarshal(p, &f); err != nil {
		return &errInside{"it failed without a reason"}
	}
	words := func(s string) string { return plain(s[:min(len(s), maxWords)]) }
	if !f.Fault || f.Kind != fault.Invalid && f.Kind != fault.Unavailable || !code.MatchString(f.Code) {
		return &errInside{words(f.Message)}
	}
	return fault.New(f.Kind, f.Code, words(f.Message), words(f.Details))
}
