package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// table formats the result for a terminal.
func (b *bench) table() string {
	var out bytes.Buffer
	t := tabwriter.NewWriter(&out, 0, 4, 3, ' ', 0)
	fmt.Fprintln(t, "what\tmeasured\tyardstick\tratio\tgoal")
	for _, r := range b.rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.value, r.yardstick, r.ratio, r.goal)
	}
	t.Flush()
	fmt.Fprintln(&out, b.machine())
	return out.String()
}

const (
	lastRun   = "Last run on "
	heading   = "| what | measured | yardstick | ratio | goal | on |"
	separator = "|---|---|---|---|---|---|"
)

// update replaces rows in the document's tables: those with the same text and baseline, below the heading of their
// part. New rows are appended, and new parts inserted before the notes. Other text is kept, including remarks after a
// goal.
func update(document string, rows []row, machine, day string) string {
	lines := strings.Split(document, "\n")
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, lastRun) }); i >= 0 {
		lines[i] = lastRun + day + ": " + machine + "."
	}
	for _, r := range rows {
		start := slices.Index(lines, "## "+r.part)
		if start < 0 {
			at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "What the lines mean") })
			if at < 0 {
				at = len(lines)
			}
			lines = slices.Insert(lines, at, "## "+r.part, "", heading, separator, r.line("", day), "")
			continue
		}
		end := start + 1
		last := 0
		for ; end < len(lines) && !strings.HasPrefix(lines[end], "## ") && !strings.HasPrefix(lines[end], "What the lines mean"); end++ {
			if lines[end] == separator || strings.HasPrefix(lines[end], "| ") && lines[end] != heading {
				last = end
			}
		}
		at := -1
		for i := start; i < end; i++ {
			if old := cells(lines[i]); old != nil && old[0] == r.what && servers(old[2]) == servers(r.yardstick) {
				at = i
				lines[i] = r.line(old[4], day)
			}
		}
		switch {
		case at >= 0:
		case last > 0:
			lines = slices.Insert(lines, last+1, r.line("", day))
		default:
			lines = slices.Insert(lines, start+1, "", heading, separator, r.line("", day))
		}
	}
	return strings.Join(lines, "\n")
}

// line formats a row of a table; remarked is the previous goal with its remark.
func (r row) line(remarked, day string) string {
	goal := cmp.Or(r.goal, "–")
	if strings.HasPrefix(remarked, r.goal) && r.goal != "" {
		goal = remarked
	}
	return "| " + strings.Join([]string{r.what, r.value, cmp.Or(r.yardstick, "–"), cmp.Or(r.ratio, "–"), goal, day}, " | ") + " |"
}

// cells returns the cells of a table's row; nil if the line isn't one.
func cells(line string) []string {
	if !strings.HasPrefix(line, "| ") || !strings.HasSuffix(line, " |") {
		return nil
	}
	list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |"), " | ")
	if len(list) != 6 {
		return nil
	}
	return list
}

// servers returns the servers that a baseline names, for those rows that differ only in them.
func servers(yardstick string) string {
	for _, name := range []string{"nginx", "caddy"} {
		if strings.HasPrefix(yardstick, name) {
			return name
		}
	}
	return ""
}

// machine describes the machine of the measurements.
func (b *bench) machine() string {
	m := fmt.Sprintf("%d cores (%s), %s of memory, %s, %s", runtime.NumCPU(), processor(), memory(), runtime.GOOS, runtime.Version())
	if b.nginx != "" {
		m += "; " + b.nginx
	}
	return m
}

// field returns the first value of a key in a file of "key: value" lines.
func field(file, key string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func processor() string { return cmp.Or(field("/proc/cpuinfo", "model name"), runtime.GOARCH) }

func memory() string {
	var kb int
	fmt.Sscanf(field("/proc/meminfo", "MemTotal"), "%d", &kb)
	return fmt.Sprintf("%.0f GB", float64(kb)/1e6)
}
