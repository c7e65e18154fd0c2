//go:build cluster

package kube

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/program/runtime"
)

const hello = "require('http').createServer((q, r) => r.end('hello')).listen(process.env.PORT, process.env.HOST)"

// Programs that use up memory, processes or disk end or get no more, with a clear reason. Another program on the same
// node continues.
func TestBombs(t *testing.T) {
	c := newCluster(t, client(t), "bombs", true)
	s, _ := c.spec("beside", hello)
	beside := c.begin(c.Engine, s)
	c.ask(beside, "")
	var all sync.WaitGroup
	for name, bomb := range map[string]struct{ script, reason, says string }{
		"memory": {"const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))", "out of memory", ""},
		"disk":   {"const fs = require('fs'); setInterval(() => { try { fs.appendFileSync('/tmp/big', Buffer.alloc(8 << 20, 1)) } catch (e) {} }, 100)", "disk limit", ""},
		"forks": {`
let up = 0
for (let i = 0; i < 500; i++) {
  const c = require('child_process').spawn('sleep', ['600'])
  c.on('error', () => {})
  if (c.pid) up++
}
console.log(up < 64 ? 'bounded' : 'unbounded ' + up)
setTimeout(() => process.exit(3), 100)`, "exit code 3", "stdout bounded"},
	} {
		s, said := c.spec(name, bomb.script)
		all.Go(func() {
			e, err := runtime.Run(t.Context(), c, s)
			if err != nil || e.Reason != bomb.reason || !strings.Contains(said(), bomb.says) {
				t.Errorf("%s: ended as %+v, %v and said\n%s", name, e, err, said())
			}
		})
	}
	all.Wait()
	if got := c.ask(beside, ""); got != "hello" {
		t.Errorf("the one beside them answers %q", got)
	}
	select {
	case <-beside.Done():
		t.Errorf("the one beside them ended as %+v", beside.Exit())
	default:
	}
}

// BenchmarkWake starts a minimal Node.js program repeatedly and waits for its first response: go run ./scripts/cluster
// -bench Wake.
func BenchmarkWake(b *testing.B) {
	c := newCluster(b, client(b), fmt.Sprint("wakes-", b.N), true)
	s, _ := c.spec("wake", hello)
	var took []time.Duration
	for i := range b.N {
		s.ID = fmt.Sprint("run_wake", i)
		begun := time.Now()
		p, err := c.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := asked(p, "", patience); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		took = append(took, time.Since(begun))
		b.StopTimer()
		p.Stop(patience)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds(), "s/p50")
	b.ReportMetric(took[len(took)*99/100].Seconds(), "s/p99")
}
