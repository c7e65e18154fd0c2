// Package builder owns builds in pods: the control plane's side, which gives a pod its order and its source and
// takes what comes back, and the side inside, which carries the build out by the code of one machine. The control
// plane's side trusts nothing that a pod says.
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

// Pods makes pods of builds. *kube.Engine does; tests do without a cluster.
type Pods interface {
	// StartBuild makes the pod of a build: a program that the cluster ends when it has run for most.
	StartBuild(ctx context.Context, s runtime.Spec, uid int, most time.Duration) (runtime.Program, error)
}

// Config holds what a Builder needs.
type Config struct {
	Pods Pods
	// CAFile is a PEM file of roots that builds trust beside their own, of less than 900 KiB. Optional.
	CAFile string
	Log    *slog.Logger // Optional.
}

// Builder carries builds out in pods. It is safe for concurrent use.
type Builder struct{ c Config }

// New returns a Builder. It starts nothing.
func New(c Config) *Builder {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Builder{c}
}

const (
	entryFile = "/slipway/build"
	// uidOffset is between the uid of a site and that of its builds: processes are counted for each uid of a node, and
	// a build must not take those of the site's program.
	uidOffset = 1 << 20
	// ownMemory, ownPids and ownDisk are what the pod needs beside the commands.
	ownMemory = 96 << 20
	ownPids   = 64
	ownDisk   = 256 << 20
	// aroundStages is what a build may take beside the time of its two stages: its source, tools and artefact are sent.
	aroundStages = 20 * time.Minute
	// attempts is how often a build begins whose pod the cluster loses.
	attempts = 3
	// maxLines is how many lines of the log are taken, a little more than what a pod sends.
	maxLines = 110_000
	// endPatience is how long the end of a pod may be unknown after its connection broke.
	endPatience = 5 * time.Minute
)

// Build carries out a build in a pod. One that the cluster loses begins anew in another.
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

// empty removes what an attempt left.
func empty(dir string) error {
	return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
}

// errLate is the end of a build that has taken longer than all of it may.
var errLate = errors.New("the build took too long")

// errLost is the end of a pod by the cluster's doing, not the build's.
type errLost struct{ why string }

func (e *errLost) Error() string { return "the pod of the build was lost: " + e.why }

// try carries the build out in one pod.
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
	most := 2*l.Wall + aroundStages
	ctx, cancel := context.WithTimeoutCause(ctx, most, errLate)
	defer cancel()
	p, err := b.c.Pods.StartBuild(ctx, runtime.Spec{
		ID: t.ID, Site: t.Site, Owner: t.Owner, Argv: []string{entryFile}, Files: files,
		Limits: runtime.Limits{Memory: l.Memory + ownMemory, CPUs: l.CPU, Pids: l.Pids + ownPids, Disk: l.Disk + ownDisk},
		Egress: true,
		Output: func(stream, line string) {
			b.c.Log.Debug("pod of a build", "build", t.ID, "stream", stream, "line", line)
		},
	}, t.UID+uidOffset, most)
	if err != nil {
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
		b.c.Log.WarnContext(ctx, "pod of a build not started", "site", t.Site, "build", t.ID, "err", err)
		return left, fault.New(fault.Unavailable, "build_not_started", "The build can't be started", err.Error())
	}
	defer func() {
		if err == nil {
			go p.Stop(0) // it has nothing more to do
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

// dial connects to the build in a pod, once it listens.
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

// ended says why a pod ended whose connection broke.
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
	return &errLost{cmp.Or(e.Reason, "the cluster does not say why")}
}

// talk sends the source and takes the report and the artefact.
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
	if kept, err := os.Open(t.Cache); err == nil { // there is none before the first build
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

// maxCache is how much builds of one site and branch may keep, as on one machine.
const maxCache = 4 << 30

// keep takes what the build has kept for the next one. Without it that one takes longer.
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

// unreadable is the fault of a build whose pod doesn't send what it must.
func unreadable() error {
	return fault.New(fault.Invalid, build.CodeFailed, "The build's output can't be read",
		"it has a file whose name can't be used, or the build has changed what sends it")
}

// errBroken is the end of a connection before all was said.
type errBroken struct{ error }

func (e *errBroken) Unwrap() error { return e.error }

// errInside is an error that is the operator's.
type errInside struct{ why string }

func (e *errInside) Error() string { return "build in a pod: " + e.why }

// heard takes what a pod reports, within bounds, and passes it on.
type heard struct {
	task  build.Task
	to    build.Report
	hide  *buildlog.Redactor
	stage string // the last one that began
	lines int
}

// next returns the next frame that is no report.
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

// stages in their order. A pod enters each once.
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

// line passes a line on as a log may show it, without secrets.
func (h *heard) line(l line) {
	if h.lines++; h.lines > maxLines || !slices.Contains(levels, l.Level) {
		return
	}
	if !colored.MatchString(l.Raw) {
		l.Raw = ""
	}
	h.to.Line(l.Level, h.hide.Redact(plain(l.Message)), h.hide.Redact(l.Raw))
}

// plain removes what no log shows.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// maxWords bounds the sentences of a failure.
const maxWords = 4 << 10

// failed is the error of which a pod tells.
func failed(p []byte) error {
	var f failure
	if err := json.Unmarshal(p, &f); err != nil {
		return &errInside{"it failed and does not say why"}
	}
	words := func(s string) string { return plain(s[:min(len(s), maxWords)]) }
	if !f.Fault || f.Kind != fault.Invalid && f.Kind != fault.Unavailable || !code.MatchString(f.Code) {
		return &errInside{words(f.Message)}
	}
	return fault.New(f.Kind, f.Code, words(f.Message), words(f.Details))
}
