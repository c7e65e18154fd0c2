package pod

import (
	"os"
	"strconv"
	"strings"
)

// field reads the number after a word in a cgroup file. The word "" reads a file that contains only a number.
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

// The pod's cgroup, version 2 or 1.
const cgroup = "/sys/fs/cgroup/"

// OOMKills returns the number of the pod's processes killed for lack of memory.
func OOMKills() int64 {
	return field(cgroup+"memory.events", "oom_kill") + field(cgroup+"memory/memory.oom_control", "oom_kill")
}

// Used returns the pod's resource usage.
func Used() Usage {
	return Usage{
		Memory: field(cgroup+"memory.current", "") + field(cgroup+"memory/memory.usage_in_bytes", ""),
		CPU:    field(cgroup+"cpu.stat", "usage_usec")*1000 + field(cgroup+"cpuacct/cpuacct.usage", ""),
	}
}
