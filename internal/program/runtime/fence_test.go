package runtime

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/node"
	"slipway/internal/platform/wait"
	"slipway/internal/platform/watchdog"
	"slipway/internal/program/volume"
)

// lease is a lease that ends when a test says so.
type lease struct {
	ended  atomic.Bool
	lapses atomic.Int64
	until  atomic.Int64 // zero: it does not end
}

func (l *lease) Until() time.Duration {
	if until := l.until.Load(); until != 0 {
		return time.Duration(until)
	}
	return watchdog.Now() + time.Hour
}

func (l *lease) Holds() bool   { return !l.ended.Load() }
func (l *lease) Lapses() int64 { return l.lapses.Load() }

// A program with storage that other nodes mount must end with the lease, even if there is a new lease by the time of
// the check. Programs without storage, and programs started under the new lease, must keep running. A directory that is
// not mounted must not be replaced by an empty one.
func TestStoredEndsWithTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &lease{}
	w.c.Storage, w.c.Lease = w.c.Dir+"-storage", l
	mark := filepath.Join(w.c.Storage, node.MarkFile)
	ok(t, os.Mkdir(w.c.Storage, 0o711))
	ok(t, os.WriteFile(mark, []byte("one\n"), 0o600))
	w.c.Volume = volume.New(volume.Config{Dir: w.c.Storage, Mark: "one"})
	go func() { _ = w.Fence(t.Context()) }()

	plain := w.start(w.spec("plain", map[string]string{"server.js": server}))
	stores := w.spec("stores", map[string]string{"server.js": server})
	stores.Storage = []Storage{{Path: "data"}}
	for _, end := range []func(){func() { l.ended.Store(true) }, func() { l.lapses.Add(1) }} {
		p := w.start(stores)
		end()
		wait.Until(t, "what stores has ended", func() bool {
			select {
			case <-p.Done():
				return true
			default:
				return false
			}
		})
		l.lapses.Add(1)
		l.ended.Store(false)
	}
	select {
	case <-plain.Done():
		t.Error("a program without storage was ended")
	default:
	}
	p := w.start(stores)
	if got := w.get(p, "/x"); got != "hello /x" {
		t.Errorf("under the new lease: %q", got)
	}
	p.Stop(0)
	ok(t, os.RemoveAll(w.c.Storage))
	ok(t, os.Mkdir(w.c.Storage, 0o711))
	if _, err := w.Start(t.Context(), stores); err == nil {
		t.Error("a program was started with an empty directory")
	}
	if _, err := w.StorageFolders(stores.Site); err == nil {
		t.Error("StorageFolders reports no folders for a directory that is not mounted")
	}
	if left, err := os.ReadDir(w.c.Storage); err != nil || len(left) > 0 {
		t.Errorf("the directory that isn't mounted has %v, %v", left, err)
	}
}

// If the lease ends and this process does not notice, the watchdog must end programs with storage. It must not end
// programs without storage, or any program while the lease is renewed in time, even if the watchdog itself was killed
// meanwhile.
func TestWatchdogEndsWhatStores(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := &lease{}
	w.c.Storage, w.c.Lease = w.c.Dir+"-storage", l
	ok(t, os.Mkdir(w.c.Storage, 0o711))
	ok(t, os.WriteFile(filepath.Join(w.c.Storage, node.MarkFile), []byte("one\n"), 0o600))
	w.c.Volume = volume.New(volume.Config{Dir: w.c.Storage, Mark: "one"})
	t.Cleanup(w.watchdog.Close)
	stores := w.spec("stores", map[string]string{"server.js": server})
	stores.Storage = []Storage{{Path: "data"}}

	plain, p := w.start(w.spec("plain", map[string]string{"server.js": server})), w.start(stores)
	if got := w.get(p, "/x"); got != "hello /x" {
		t.Fatalf("under the lease: %q", got)
	}
	l.until.Store(int64(watchdog.Now() - time.Minute)) // Holds does not say so, as if this process checked too late
	w.fence()
	wait.Until(t, "what stores has ended", func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
	if got := w.get(plain, "/x"); got != "hello /x" {
		t.Errorf("a program without storage answers %q", got)
	}
	plain.Stop(0)

	l.until.Store(0)
	p = w.start(stores)
	before := w.watchdog.PID()
	ok(t, unix.Kill(before, unix.SIGKILL))
	wait.Until(t, "another watchdog runs", func() bool { pid := w.watchdog.PID(); return pid != 0 && pid != before })
	if got := w.get(p, "/x"); got != "hello /x" {
		t.Errorf("after the watchdog's end: %q", got)
	}
	l.until.Store(int64(watchdog.Now() - time.Minute))
	w.fence()
	wait.Until(t, "what stores has ended", func() bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
}
