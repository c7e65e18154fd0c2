package runtime

import (
	"strconv"
	"strings"
	"testing"
)

// V8's heap must be limited by the memory of the site and not by that of the machine. A limit that the site sets itself
// takes precedence.
func TestHeapOfNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, tt := range []struct {
		own         string
		least, most int // in MiB
	}{
		{"", 300, 450},
		{"--max-old-space-size=200", 200, 260},
		{"--no-warnings --max_old_space_size=200", 200, 260},
		{"--no-warnings", 300, 450},
	} {
		s := w.spec("heap"+strconv.Itoa(i), map[string]string{
			"heap.js": "console.log(Math.round(require('v8').getHeapStatistics().heap_size_limit / 1048576), process.execArgv.length)",
		})
		s.Argv, s.Limits.Memory = []string{"node", "heap.js"}, 512<<20
		if tt.own != "" {
			s.Env = append(s.Env, "NODE_OPTIONS="+tt.own)
		}
		line := ""
		s.Output = func(stream, text string) { line = text }
		exit, err := Run(t.Context(), w, s)
		text, _, _ := strings.Cut(line, " ")
		if n, _ := strconv.Atoi(text); err != nil || exit.Code != 0 || n < tt.least || n > tt.most {
			t.Errorf("with %q the heap has %q MiB, want %d to %d: %+v %v", tt.own, line, tt.least, tt.most, exit, err)
		}
	}
}
