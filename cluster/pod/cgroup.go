package pod

import (
	"os"
	"strconv"
	"strings"
)

// field reads a number behind a word of a file, as cgroups have them; a file with a number alone has
// the word "".
func field(name, word string) (n int64) {
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if word != "" && len(words) == 2 && words[0] == word {
			n, _ = strconv.ParseInt(words[1], 10, 64)
		} else if word == "" && len(words) == 1 {
			n, _ = strconv.ParseInt(words[0], 10, 64)
		}
	}
	return n
}

// The pod's own cgroup, in its two versions.
const cgroup = "/sys/fs/cgroup/"

// OOMKills counts the processes of the pod that were ended for want of memory.
func OOMKills() int64 {
	return field(cgroup+"memory.events", "oom_kill") + field(cgroup+"memory/memory.oom_control", "oom_kill")
}

// Used returns what the pod uses.
func Used() Usage {
	return Usage{
		Memory: field(cgroup+"memory.current", "") + field(cgroup+"memory/memory.usage_in_bytes", ""),
		CPU:    field(cgroup+"cpu.stat", "usage_usec")*1000 + field(cgroup+"cpuacct/cpuacct.usage", ""),
	}
}
