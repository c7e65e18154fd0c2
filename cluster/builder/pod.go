package builder

import (
	"os"
	"strconv"
	"strings"
)

// oomKills counts the processes of the pod that the kernel ended for want of memory, by its cgroup of either version.
func oomKills() (n int64) {
	for _, name := range []string{"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if word, number, _ := strings.Cut(strings.TrimSpace(line), " "); word == "oom_kill" {
				count, _ := strconv.ParseInt(number, 10, 64)
				n += count
			}
		}
	}
	return n
}
