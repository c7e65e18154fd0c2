package runtime

import (
	"context"
	"io"

	"slipway/internal/platform/id"
)

// Host is an Engine together with what lies and runs beside its programs: the storage of sites, what serves programs, and what
// keeps them from writing. Processes is the one of this machine.
type Host interface {
	Engine
	// Connect gives programs their ways, which are made after the engine. It belongs before the first Start.
	Connect(w Ways)
	// Fence ends what writes to storage that another node may begin to write to, until ctx ends.
	Fence(ctx context.Context) error
	// Hold keeps every program of a site from running until release is called.
	Hold(site id.Site) (release func())

	// StorageShared reports whether every node has the same storage.
	StorageShared() bool
	// StorageFault returns a fault while storage can't be used. It waits for nothing.
	StorageFault() error
	// StorageSites lists the sites that have storage.
	StorageSites() ([]id.Site, error)
	// StorageSize returns the bytes of a site's storage, that of its previews included.
	StorageSize(ctx context.Context, site id.Site) (int64, error)
	// StorageDir returns the directory of this host that has a site's storage; ok is false where none has.
	StorageDir(site id.Site) (dir string, ok bool)
	// FetchStorage brings what StorageFolders lists up to date with what a site has stored, where that is elsewhere. It is kept there
	// until the closer is closed; a caller who holds the site's programs calls it again for what they have changed.
	FetchStorage(ctx context.Context, site id.Site) (io.Closer, error)
	// KeepStorage stores what was changed in the directories that StorageFolders and MakeStorage return: all of it, or nothing.
	KeepStorage(ctx context.Context, site id.Site) error
	// StorageFolders returns the directories of this host that have the folders of a site's storage, by name.
	StorageFolders(site id.Site) (map[string]string, error)
	// MakeStorage makes a storage folder that a site lacks.
	MakeStorage(ctx context.Context, site id.Site, name string) (dir string, err error)
	// ForgetStorage deletes a site's storage, that of its previews included.
	ForgetStorage(site id.Site) error
	// PreviewStores lists the previews that have storage, by site.
	PreviewStores() (map[id.Site][]string, error)
	// ForgetPreview deletes a preview's storage.
	ForgetPreview(site id.Site, preview string) error

	// ClearRedis makes what the object cache of a site's programs holds unfindable, and reports whether one of them has any.
	ClearRedis(site id.Site) bool
	// NoRedis says in words why programs can't have a Redis here; empty: they can.
	NoRedis() string
}
