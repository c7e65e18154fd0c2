package sandbox

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/panics"
)

// watch enforces limits that the kernel doesn't: always the disk, and memory if no cgroup limits it.
//
// Disk usage is polled because quotas by project or loop device need a prepared file system and rights that a plain
// user lacks, and the tree exists before the command starts. RLIMIT_FSIZE stops a single large file at once. When free
// space shrinks quickly, the watch counts immediately, so a command exceeds its limit by at most what the disk writes
// in about a tenth of a second.
type watch struct {
	r    *run
	done chan struct{}
	wg   panics.Background

	mu    sync.Mutex // guards usage
	usage Usage
}

const (
	tick    = 100 * time.Millisecond
	rest    = 50                // a count takes at most 1/rest of the time, unless free space shrinks quickly
	reserve = 256 << 20         // bytes that builds leave free for the service
	spare   = reserve / PerFile // files that builds leave free
)

func newWatch(r *run) *watch { return &watch{r: r, done: make(chan struct{})} }

func (w *watch) start() {
	if w.r.c.Limits.Disk < Unlimited {
		w.wg.Go(w.disk)
	}
	if w.r.group != nil && w.r.group.Memory != "" {
		w.wg.Go(w.oom)
	} else {
		w.wg.Go(w.tree)
	}
}

// stop ends the watch and returns the last usage.
func (w *watch) stop() Usage {
	close(w.done)
	w.wg.Wait()
	return w.usage
}

// every calls f each tick until f returns false or the run ends.
func (w *watch) every(f func() bool) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for f() {
		select {
		case <-w.done:
			return
		case <-t.C:
		}
	}
}

// oom stops the whole command after the kernel killed a part of it, since the rest would fail in confusing ways.
func (w *watch) oom() {
	w.every(func() bool {
		if w.r.group.OOM() > 0 {
			w.r.report(OutOfMemory)
			return false
		}
		return true
	})
}

// tree adds up the memory of the run's processes and of its in-memory file systems. Pages shared after a fork count for
// each process, so the sum is an upper bound. It misses shared anonymous memory that its process has unmapped
// (MADV_DONTNEED).
func (w *watch) tree() {
	w.every(func() bool {
		var mem int64
		var cpu time.Duration
		all := processes()
		pids := w.r.procs()
		mem += inMemory(pids)
		for _, pid := range pids {
			mem += resident(pid)
			cpu += all[pid].cpu
		}
		w.mu.Lock()
		w.usage.MaxMemory, w.usage.CPU = max(w.usage.MaxMemory, mem), max(w.usage.CPU, cpu)
		w.mu.Unlock()
		if mem > w.r.c.Limits.Memory {
			w.r.report(OutOfMemory)
			return false
		}
		return true
	})
}

// resident returns a process's memory without file-backed pages, in bytes.
func resident(pid int) (sum int64) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		k, v, _ := strings.Cut(s.Text(), ":")
		if k == "RssAnon" || k == "RssShmem" {
			kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

// inMemory returns the bytes in a sandbox's in-memory file systems, as seen by one of its processes.
func inMemory(pids []int) (sum int64) {
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		var host, own unix.Stat_t
		_ = unix.Stat(dir, &host)
		for _, pid := range pids {
			at := "/proc/" + strconv.Itoa(pid) + "/root" + dir
			if unix.Stat(at, &own) != nil || own.Dev == host.Dev { // processes that build the sandbox are outside
				continue
			}
			var st unix.Statfs_t
			if unix.Statfs(at, &st) == nil && st.Type == unix.TMPFS_MAGIC {
				sum += int64(st.Blocks-st.Bfree) * st.Bsize
				break
			}
		}
	}
	return sum
}

func (w *watch) disk() {
	l := w.r.c.Limits
	places, stored, whole := []string{w.r.c.Work}, []bool{false}, 1 // the first of them count fully
	if w.r.tmp != "" {
		places, stored = append(places, w.r.tmp), append(stored, false)
		whole++
	}
	for _, b := range w.r.c.Binds {
		if b.Layer != "" {
			places, stored = append(places, b.Layer), append(stored, false)
			whole++
		}
	}
	for _, b := range w.r.c.Binds {
		if b.Write {
			places, stored = append(places, b.Source), append(stored, b.Stored)
		}
	}
	base := make([]tally, len(places)) // initial size of the binds
	for i := whole; i < len(places); i++ {
		base[i] = count(places[i], tally{1 << 62, 1 << 62}, w.done)
	}
	most := l.Disk
	if l.Stored > 0 {
		most = max(most, l.Stored)
	} else {
		clear(stored)
	}
	var last time.Time
	var took time.Duration
	low := free(w.r.c.Work)
	overlays := w.r.launch.devices()
	w.every(func() bool {
		now := free(w.r.c.Work)
		vanished := low.bytes-now.bytes > max(l.Disk/16, 16<<20) || low.files-now.files > max(l.Files/16, 1000)
		if !vanished && time.Since(last) < max(time.Second, rest*took) {
			return true
		}
		begin := time.Now()
		low = now
		var sum tally
		kept := int64(0)
		for i, p := range places {
			limit := tally{most + base[i].bytes, l.Files + base[i].files}
			if stored[i] {
				limit = tally{most, most / PerFile}
			}
			t := count(p, limit, w.done)
			sum.files += max(0, t.files-base[i].files)
			if stored[i] {
				kept += t.cost()
				continue
			}
			sum.bytes += max(0, t.bytes-base[i].bytes)
		}
		if vanished || now.bytes < reserve {
			sum.bytes += unlinked(w.r.procs(), w.r.c.Work, overlays, w.r.c.UID)
		}
		last, took = time.Now(), time.Since(begin)
		w.mu.Lock()
		w.usage.Disk = sum.bytes
		w.mu.Unlock()
		if l.Stored > 0 && kept > l.Stored {
			w.r.report(StorageFull)
			return false
		}
		if sum.bytes > l.Disk || sum.files > l.Files || now.bytes < reserve && sum.bytes > reserve/4 ||
			now.files < spare && sum.files > spare/4 {
			w.r.report(DiskFull)
			return false
		}
		return true
	})
}

// free returns the free space of dir's file system. Its files are unlimited if the file system doesn't count them.
func free(dir string) tally {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return tally{1 << 62, 1 << 62}
	}
	left := tally{int64(st.Bavail) * st.Bsize, int64(st.Ffree)}
	if st.Files == 0 {
		left.files = 1 << 62
	}
	return left
}
