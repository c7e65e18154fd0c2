package kube

import (
	"context"
	"errors"

	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// The engine is a Host: what it can't keep or hold yet it refuses, or has none of.
var _ runtime.Host = (*Engine)(nil)

// Fence ends nothing: no program writes to storage.
func (e *Engine) Fence(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Hold holds nothing: no program writes to storage.
func (e *Engine) Hold(id.Site) (release func()) { return func() {} }

// StorageShared reports that every node has the same storage, which is none.
func (e *Engine) StorageShared() bool { return true }

// StorageFault returns nil.
func (e *Engine) StorageFault() error { return nil }

// StorageSites lists no site.
func (e *Engine) StorageSites() ([]id.Site, error) { return nil, nil }

// StorageSize returns 0.
func (e *Engine) StorageSize(context.Context, id.Site) (int64, error) { return 0, nil }

// StorageDir returns none.
func (e *Engine) StorageDir(id.Site) (dir string, ok bool) { return "", false }

// StorageFolders returns none.
func (e *Engine) StorageFolders(id.Site) (map[string]string, error) { return nil, nil }

// MakeStorage refuses.
func (e *Engine) MakeStorage(context.Context, id.Site, string) (dir string, err error) {
	return "", errors.New("storage folders are not available on Kubernetes yet")
}

// ForgetStorage does nothing.
func (e *Engine) ForgetStorage(id.Site) error { return nil }

// PreviewStores lists none.
func (e *Engine) PreviewStores() (map[id.Site][]string, error) { return nil, nil }

// ForgetPreview does nothing.
func (e *Engine) ForgetPreview(id.Site, string) error { return nil }

// ClearRedis reports that no program has a Redis.
func (e *Engine) ClearRedis(id.Site) bool { return false }

// NoRedis says that programs can't have one.
func (e *Engine) NoRedis() string { return "Redis is not available on Kubernetes yet" }
