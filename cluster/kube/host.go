package kube

import (
	"context"

	"slipway/internal/platform/fault"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// The engine is a Host: what it can't keep or hold yet it refuses, or has none of.
var _ runtime.Host = (*Engine)(nil)

// Fence ends nothing: whoever takes a site over ends what other processes left of it, and waits until the cluster has seen that end.
func (e *Engine) Fence(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// StorageDir reports whether a site has storage, which has no directory here.
func (e *Engine) StorageDir(site id.Site) (dir string, ok bool) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	all, err := e.claims(ctx, site)
	return "", err == nil && len(all) > 0
}

// StorageFolders refuses to list what a site stores: it is in no directory here. A site that stores nothing has none.
func (e *Engine) StorageFolders(site id.Site) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	if all, err := e.claims(ctx, site); err != nil || len(all) == 0 {
		return nil, err
	}
	return nil, &fault.Error{
		Kind: fault.Unavailable, Message: "Files that programs store on Kubernetes can't be read or backed up by Slipway yet",
		Details: "use the volume snapshots of your cluster", Code: "no_storage",
	}
}

// MakeStorage refuses.
func (e *Engine) MakeStorage(context.Context, id.Site, string) (dir string, err error) {
	return "", &fault.Error{
		Kind: fault.Unavailable, Message: "Files can't be restored to storage on Kubernetes by Slipway yet",
		Details: "use the volume snapshots of your cluster", Code: "no_storage",
	}
}
