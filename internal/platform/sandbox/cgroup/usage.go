package cgroup

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is the resource usage of a group's processes.
type Usage struct {
	CPU       time.Duration
	Memory    int64 // bytes, current
	MaxMemory int64 // bytes
}

// OOM returns how many processes the memory limit killed.
func (g *Group) OOM() int64 {
	switch {
	case g.Memory == "":
		return 0
	case g.Memory == g.Unified:
		return field(filepath.Join(g.Memory, "memory.events"), "oom_kill")
	default:
		return field(filepath.Join(g.Memory, "memory.oom_control"), "oom_kill")
	}
}

// Usage returns the group's usage so far.
func (g *Group) Usage() (u Usage) {
	switch {
	case g.Memory == "":
	case g.Memory == g.Unified:
		u.MaxMemory = number(filepath.Join(g.Memory, "memory.peak"))
		u.Memory = number(filepath.Join(g.Memory, "memory.current"))
	default:
		u.MaxMemory = number(filepath.Join(g.Memory, "memory.max_usage_in_bytes"))
		u.Memory = number(filepath.Join(g.Memory, "memory.usage_in_bytes"))
	}
	switch {
	case g.acct == "":
	case g.acct == g.Unified:
		u.CPU = time.Duration(field(filepath.Join(g.acct, "cpu.stat"), "usage_usec")) * time.Microsecond
	default:
		u.CPU = time.Duration(number(filepath.Join(g.acct, "cpuacct.usage")))
	}
	return u
}

func number(file string) int64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

func field(file, key string) int64 {
	text, _ := os.ReadFile(file)
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), " "); ok && k == key {
			n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n
		}
	}
	return 0
}
