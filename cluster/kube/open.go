package kube

import (
	"context"
	"errors"
	"os"
	"sync"

	"slipway/internal/program/runtime"
)

// view is a program's files as they are opened here, from when it is first asked for until the program's end.
type view struct {
	mu    sync.Mutex // guards what follows
	files *runtime.View
	ended bool
}

var errEnded = errors.New("the program has ended")

// of returns the files of a program.
func (v *view) of(ctx context.Context, e *Engine, s runtime.Spec) (*runtime.View, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return nil, errEnded
	}
	if v.files == nil {
		files, err := runtime.OpenView(ctx, e.c.Bundles, s)
		if err != nil {
			return nil, err
		}
		v.files = files
	}
	return v.files, nil
}

func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	if v.files != nil {
		v.files.Close()
	}
}

// Open opens a file as the program sees it. What is read-only is opened from this machine's own trees of the same bundles, so
// that no request for a script or a style sheet waits for the network; of what is in storage it is a copy.
func (x *program) Open(name string) (*os.File, bool, error) {
	files, err := x.view.of(context.Background(), x.e, x.spec)
	if err != nil {
		return nil, false, err
	}
	f, stored, err := files.Open(name)
	if stored == nil {
		return f, false, err
	}
	f, err = x.e.copies.open(x, *stored)
	return f, true, err
}
