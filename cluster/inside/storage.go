package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/cluster/pod"
	"slipway/cluster/stored"
	"slipway/internal/platform/sandbox"
	"slipway/internal/program/runtime"
)

// maxStorage is more than any storage can hold.
const maxStorage = 1 << 50

// elsewhere is the file in which the first step records the bytes in folders that the program can't see.
const elsewhere = "/tmp/.slipway-stored"

// errReadOnly means that the program must not write to its storage.
type errReadOnly struct{ used, limit int64 }

func (e errReadOnly) Error() string { return runtime.StorageReadOnly(e.used, e.limit) }

// store creates the storage folders, initialized from the bundle, and counts the stored bytes.
func store(d pod.Description, app *os.Root) error {
	if len(d.Storage) == 0 {
		return nil
	}
	if unix.Access(pod.StorageDir, unix.W_OK) != nil && !d.ReadOnly {
		return fmt.Errorf("the storage of this site is not writable for its user, %d: its storage class must support fsGroup, "+
			"or provide volumes that everyone can write to", os.Getuid())
	}
	if err := stored.Finish(pod.StorageDir); err != nil && !d.ReadOnly {
		return fmt.Errorf("finish a restore: %w", err)
	}
	var seen int64
	for _, f := range d.Storage {
		tree := app
		if filepath.IsAbs(f.Path) {
			tree = nil // nothing in the bundle
		} else if err := app.MkdirAll(f.Path, 0o755); err != nil { // the folder is mounted over it
			return fmt.Errorf("the folder %s can't be storage: %w", f.Path, err)
		}
		dir := filepath.Join(pod.StorageDir, f.Name)
		if _, err := os.Stat(dir); err != nil || !d.ReadOnly {
			if dir, err = runtime.MakeFolder(pod.StorageDir, runtime.FolderOf(f.Name), tree, f.Path, os.Getuid()); err != nil {
				return err
			}
			if err := makePlaces(d, f.Path, dir); err != nil {
				return err
			}
		}
		seen += sandbox.Size(dir, maxStorage)
	}
	all := Stored()
	if d.StorageLimit > 0 && !d.ReadOnly && seen > runtime.StorageMost(d.StorageLimit) {
		return errReadOnly{seen, d.StorageLimit}
	}
	return os.WriteFile(elsewhere, []byte(strconv.FormatInt(max(0, all-seen), 10)), 0o600)
}

// Stored counts all stored bytes of a pod.
func Stored() (n int64) {
	entries, _ := os.ReadDir(pod.StorageDir)
	for _, e := range entries { // skip the file system's own entries
		if e.Name() != "lost+found" {
			n += sandbox.Size(filepath.Join(pod.StorageDir, e.Name()), maxStorage)
		}
	}
	return n
}

// keeping monitors a program's storage.
type keeping struct {
	folders   []string
	elsewhere int64
	covered   int64 // bytes of the release's trees mounted over them, which don't count
	limit     int64 // 0: unlimited
}

// newKeeping measures the storage before the program starts. It returns nil if the program has none.
func newKeeping(d pod.Description, out *output) *keeping {
	if len(d.Storage) == 0 {
		return nil
	}
	k := &keeping{}
	if text, err := os.ReadFile(elsewhere); err == nil {
		k.elsewhere, _ = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		_ = os.Remove(elsewhere)
	}
	for _, f := range d.Storage {
		k.folders = append(k.folders, f.At(runtime.AppDir))
		for _, t := range d.Trees {
			if t.Stage != "" && strings.HasPrefix(t.Path, f.Path+"/") {
				k.covered += sandbox.Size(filepath.Join(runtime.AppDir, t.Path), maxStorage)
			}
		}
	}
	if d.StorageLimit <= 0 {
		return k
	}
	used := k.count()
	switch {
	case d.ReadOnly:
		out.say(runtime.StorageReadOnly(used, d.StorageLimit))
		return k
	case used > d.StorageLimit:
		out.say(runtime.StorageFull(used, d.StorageLimit))
	}
	k.limit = d.StorageLimit
	if used > k.limit {
		k.limit = used + runtime.StorageGrace
	}
	return k
}

// count counts the bytes in the folders that the program sees.
func (k *keeping) count() (n int64) {
	for _, f := range k.folders {
		n += sandbox.Size(f, maxStorage)
	}
	return max(0, n-k.covered)
}

// stored returns the site's stored bytes.
func (k *keeping) stored() int64 {
	if k == nil {
		return 0
	}
	return k.elsewhere + k.count()
}

// rest limits counting to a fiftieth of the time, as on a single machine.
const rest = 50

// watch calls full once the program has stored more than its limit.
func (k *keeping) watch(full func()) {
	if k == nil || k.limit == 0 {
		return
	}
	pause := time.Second
	for {
		time.Sleep(pause)
		begun := time.Now()
		if k.count() > k.limit {
			full()
			return
		}
		pause = max(time.Second, rest*time.Since(begun))
	}
}

// asReadOnly converts errReadOnly to the end of the first step.
func asReadOnly(err error) (e pod.End, ok bool) {
	var full errReadOnly
	if !errors.As(err, &full) {
		return e, false
	}
	return pod.End{Code: 125, Reason: pod.StorageFull}, true
}
