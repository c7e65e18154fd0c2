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

// watch enforces what the kernel does not limit for us: always the disk, and memory
// where there is no cgroup for it.
//
// Why the disk is watched and not fenced: quotas by project or by loop device need a
// file system prepared for them and rights that a plain user lacks, and the tree is
// already there when the command starts. RLIMIT_FSIZE stops a single file at once; a
// check of the free space every tick makes the watcher count as soon as something
// grows fast, so the overshoot is what a disk takes in about a tenth of a second.
type watch struct {
	r    *run
	done chan struct{}
	wg   panics.Background

	mu    sync.Mutex // guards usage
	usage Usage
}

const (
	tick    = 100 * time.Millisecond
	rest    = 50                // a count takes at most 1/rest of the time, unless space vanishes
	reserve = 256 << 20         // bytes that builds leave free for the service itself
	spare   = reserve / PerFile // files likewise
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

// stop ends the looking and returns what was seen.
func (w *watch) stop() Usage {
	close(w.done)
	w.wg.Wait()
	return w.usage
}

// every calls f each tick until it returns false or the run ends.
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

// oom ends the whole command once the kernel killed a part of it: what goes on without
// that part would end in a riddle.
func (w *watch) oom() {
	w.every(func() bool {
		if w.r.group.OOM() > 0 {
			w.r.report(OutOfMemory)
			return false
		}
		return true
	})
}

// tree adds up the memory of all processes of the run, and what its file systems in memory
// hold. Pages shared by a fork count for each, so the sum errs on the side of the host. What
// is shared without a file and was given back by its process (MADV_DONTNEED) is not seen.
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

// resident is the memory of a process that is not backed by files, in bytes.
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

// inMemory returns the bytes that a sandbox's file systems in memory hold, as one of its
// processes sees them.
func inMemory(pids []int) (sum int64) {
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		var host, own unix.Stat_t
		_ = unix.Stat(dir, &host)
		for _, pid := range pids {
			at := "/proc/" + strconv.Itoa(pid) + "/root" + dir
			if unix.Stat(at, &own) != nil || own.Dev == host.Dev { // those who build the sandbox are outside
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
	places, stored := []string{w.r.c.Work}, []bool{false}
	for _, b := range w.r.c.Binds {
		if b.Write {
			places, stored = append(places, b.Source), append(stored, b.Stored)
		}
	}
	base := make([]tally, len(places)) // what binds held before; Work counts in full
	for i := 1; i < len(places); i++ {
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
			sum.bytes += unlinked(w.r.procs(), w.r.c.Work, w.r.c.UID)
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

// free returns what dir's file system has left for everybody: any number of files where it
// counts none.
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
