package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/platform/wait"
)

// losses collects the paths that programs wrote to and that are lost.
type losses struct {
	mu    sync.Mutex // guards wrote
	wrote []Written
}

func (l *losses) Wrote(list []Written) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote = append(l.wrote, list...)
}

// A program may change the files that it runs from. The next start, and other programs of the same bundle, must see
// none of the changes, and each start must report the lost paths once.
func TestProgramWritesBesideItself(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes layers")
	}
	w := newWorld(t)
	s := w.spec("one", map[string]string{
		"server.js": `
			const fs = require("fs")
			console.log("state " + fs.readFileSync("state.json") + " " + fs.existsSync("db/main.db"))
			fs.writeFileSync("state.json", "changed")
			fs.mkdirSync("db"); fs.writeFileSync("db/main.db", "rows")
			fs.mkdirSync("public/up/2026", {recursive: true}); fs.writeFileSync("public/up/2026/a.png", "a")
			fs.writeFileSync("public/index.html", "new"); fs.rmSync("old.txt"); fs.renameSync("lib", "lib2")
			fs.mkdirSync("empty"); fs.mkdirSync("node_modules/.cache", {recursive: true}); fs.writeFileSync("node_modules/.cache/x", "x")
			fs.writeFileSync("data/kept", "kept")
			console.log("wrote " + fs.readFileSync("public/index.html"))
			require("http").createServer((q, r) => r.end("up")).listen(process.env.PORT)`,
		"state.json": "shipped", "public/index.html": "page", "old.txt": "old", "lib/a.js": "a", "data/seed": "seed",
	})
	w.c.Storage = filepath.Join(t.TempDir(), "storage")
	if err := os.Chmod(filepath.Dir(w.c.Storage), 0o755); err != nil {
		t.Fatal(err)
	}
	s.Storage = []Storage{{Path: "data"}}
	lost := new(losses)
	s.Losses = lost
	for i, id := range []string{"one", "two"} {
		s.ID = id
		p := w.start(s)
		wait.Until(t, "the program has written", func() bool { return strings.Count(w.said(), "wrote new") == i+1 }, w.said)
		p.Stop(0)
		<-p.Done()
	}
	if said := w.said(); strings.Count(said, "state shipped false") != 2 {
		t.Errorf("a start saw what an earlier one wrote:\n%s", said)
	}
	lost.mu.Lock()
	defer lost.mu.Unlock()
	want := []Written{{"db", true}, {"public", true}, {"public/up", true}, {"state.json", false}}
	if !slices.Equal(lost.wrote, slices.Concat(want, want)) {
		t.Errorf("wrote %v, want %v for each start", lost.wrote, want)
	}
	if left, _ := filepath.Glob(filepath.Join(w.c.Dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	kept, err := os.ReadFile(filepath.Join(w.c.Storage, string(s.Site), "data", "kept"))
	if err != nil || string(kept) != "kept" {
		t.Errorf("storage has %q, %v", kept, err)
	}
}

// What a program writes among its own files must count against its disk limit, and a site must be able to ask for
// read-only files.
func TestWritesAreBounded(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root makes layers")
	}
	w := newWorld(t)
	s := w.spec("full", map[string]string{
		"server.js": `const fs = require("fs"); for (let i = 0; ; i++) fs.writeFileSync("f" + i, Buffer.alloc(1 << 20))`,
	})
	p := w.start(s)
	<-p.Done()
	if e := p.Exit(); !strings.Contains(e.Reason, "disk limit") {
		t.Errorf("the program ended with %+v", e)
	}
	s = w.spec("fixed", map[string]string{"server.js": `
		try { require("fs").writeFileSync("f", "f"); console.log("written") } catch (e) { console.log(e.code) }`})
	s.ReadOnly = true
	<-w.start(s).Done()
	if said := w.said(); !strings.Contains(said, "EROFS") {
		t.Errorf("the output is %q", said)
	}
}

// BenchmarkLayer starts a Node.js server with and without a layer in turns, until it listens.
func BenchmarkLayer(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("only root makes layers")
	}
	w := newWorld(b)
	s := w.spec("wake", map[string]string{"server.js": `require("http").createServer((q, r) => r.end("up")).listen(process.env.PORT)`})
	took := map[bool][]time.Duration{}
	for i := range 2 * b.N {
		s.ID, s.ReadOnly = "wake"+strconv.Itoa(i), i%2 == 0
		begun := time.Now()
		p := w.start(s)
		for {
			if c, err := p.Dial(b.Context()); err == nil {
				_ = c.Close()
				break
			}
		}
		took[s.ReadOnly] = append(took[s.ReadOnly], time.Since(begun))
		p.Stop(0)
	}
	median := func(list []time.Duration) float64 {
		slices.Sort(list)
		return float64(list[len(list)/2].Microseconds()) / 1000
	}
	b.ReportMetric(median(took[true]), "ms-without")
	b.ReportMetric(median(took[false]), "ms-with")
	b.ReportMetric(median(took[false])/median(took[true]), "ratio")
}
