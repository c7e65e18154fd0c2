package runtime

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkWake starts a plain Node.js server in turns in its sandbox and without one, measures until the first byte of
// the first answer, and adds up the memory of the processes beside it.
func BenchmarkWake(b *testing.B) {
	w := newWorld(b)
	const text = `require('http').createServer((q, r) => r.end('hello')).listen(process.env.PORT, '127.0.0.1')`
	s := w.spec("wake", map[string]string{"server.js": text})
	dir := b.TempDir()
	ok(b, os.WriteFile(filepath.Join(dir, "server.js"), []byte(text), 0o644))
	var ours, bare time.Duration
	beside := 0
	for i := range b.N {
		s.ID = "wake" + strconv.Itoa(i)
		begun := time.Now()
		p, err := w.Start(b.Context(), s)
		ok(b, err)
		w.get(p, "/")
		ours += time.Since(begun)
		if i == 0 {
			beside = memoryBeside()
		}
		p.Stop(0)
		port := strconv.Itoa(20_000 + i%10_000)
		cmd := exec.Command("node", "server.js")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PORT="+port, "NODE_ENV=production")
		begun = time.Now()
		ok(b, cmd.Start())
		for {
			resp, err := http.Get("http://127.0.0.1:" + port)
			if err == nil {
				resp.Body.Close()
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		bare += time.Since(begun)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	b.ReportMetric(float64(ours.Milliseconds())/float64(b.N), "ms/wake")
	b.ReportMetric(float64(bare.Milliseconds())/float64(b.N), "ms/bare")
	b.ReportMetric(float64(beside), "kB-beside")
}

// memoryBeside returns the total proportional memory, in kB, of the processes below this one that are not Node.js.
func memoryBeside() (kb int) {
	parents := map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		text, _ := os.ReadFile(name)
		if _, rest, found := strings.Cut(string(text), ") "); found {
			if f := strings.Fields(rest); len(f) > 1 {
				parents[pid], _ = strconv.Atoi(f[1])
			}
		}
	}
	for pid := range parents {
		at := pid
		for at > 1 && at != os.Getpid() {
			at = parents[at]
		}
		dir := "/proc/" + strconv.Itoa(pid)
		line, _ := os.ReadFile(dir + "/cmdline")
		if at != os.Getpid() || pid == at || strings.HasPrefix(string(line), "node\x00") {
			continue
		}
		rollup, _ := os.ReadFile(dir + "/smaps_rollup")
		for l := range strings.Lines(string(rollup)) {
			if v, found := strings.CutPrefix(l, "Pss:"); found {
				n, _ := strconv.Atoi(strings.Fields(v)[0])
				kb += n
			}
		}
	}
	return kb
}
