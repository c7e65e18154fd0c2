package kube

import (
	"context"
	"errors"
	"os"
	"sync"

	"slipway/internal/program/runtime"
)

// view opens a program's files on this machine, from the first request until the program ends.
type view struct {
	mu    sync.Mutex // guards the fields below
	files *runtime.View
	ended bool
}

var errEnded = errors.New("the program has ended")

// of returns the view of a program's files.
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

// Open opens a file as the program sees it. Read-only files come from this machine's copies of the bundles, so that
// requests for scripts or style sheets don't wait for the network. Files in storage are copies.
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
