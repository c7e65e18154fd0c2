package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// costs is the environment variable for the file in which ondatabases records the cost of each test program.
const costs = "SLIPWAY_TEST_COSTS"

// costliest is the number of packages in the table at the end.
const costliest = 15

// cost is the duration and the processor time of something, including its children.
type cost struct {
	name            string
	took, processor time.Duration
}

// table writes the costs of steps, each with its processor utilization (200 %: two processors), and of the most
// expensive packages. Steps that ran beside others count toward the total processor time, but not toward the total
// duration.
func table(to io.Writer, steps, packages []cost, whole, idle time.Duration) {
	fmt.Fprintf(to, "%12s %10s %6s\n", "took", "processor", "busy")
	var used time.Duration
	for _, c := range steps {
		used += c.processor
		c.line(to)
	}
	cost{"all", whole, used}.line(to)
	if idle > 0 {
		fmt.Fprintf(to, "%23s %6s  processors had nothing to do\n", seconds(idle), "")
	}
	if len(packages) == 0 {
		return
	}
	fmt.Fprintf(to, "the costliest packages of %d, without building them:\n", len(packages))
	slices.SortStableFunc(packages, func(a, b cost) int { return cmp.Compare(b.processor, a.processor) })
	for _, c := range packages[:min(costliest, len(packages))] {
		c.line(to)
	}
}

func (c cost) line(to io.Writer) {
	busy := ""
	if c.took > 0 {
		busy = fmt.Sprintf("%.0f %%", 100*c.processor.Seconds()/c.took.Seconds())
	}
	fmt.Fprintf(to, "%12s %10s %6s  %s\n", seconds(c.took), seconds(c.processor), busy, c.name)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// notes is the file in which ondatabases records costs.
type notes struct {
	name string
	own  bool
}

// makeNotes creates the file. If the environment names an existing one, lines are appended to it, and it is kept.
func makeNotes() (notes, error) {
	if name := os.Getenv(costs); name != "" {
		return notes{name: name}, nil
	}
	file, err := os.CreateTemp("", "slipway-costs-")
	if err != nil {
		return notes{}, err
	}
	return notes{file.Name(), true}, errors.Join(file.Close(), os.Setenv(costs, file.Name()))
}

func (n notes) text() []byte { text, _ := os.ReadFile(n.name); return text }

func (n notes) remove() {
	if n.own {
		os.Remove(n.name)
	}
}

// testRun is a running or completed test program on one database.
type testRun struct {
	folder, database string
	began            time.Time
	ended, failed    bool
	took, processor  time.Duration
}

// readNotes parses ondatabases' lines, the earliest test program first. Folders are relative to root.
func readNotes(text []byte, root string) (found []testRun) {
	for line := range bytes.Lines(text) {
		event, rest, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		fields := strings.SplitN(rest, " ", map[string]int{"begin": 3, "end": 5}[event])
		if len(fields) < 3 {
			continue
		}
		number := func(i int) float64 { n, _ := strconv.ParseFloat(fields[i], 64); return n }
		lasting := func(i int) time.Duration { return time.Duration(number(i) * float64(time.Second)) }
		folder, err := filepath.Rel(root, fields[len(fields)-1])
		if err != nil {
			continue
		}
		database := fields[len(fields)-2]
		if event == "begin" {
			found = append(found, testRun{folder: folder, database: database, began: time.UnixMilli(int64(number(0) * 1000))})
			continue
		}
		for i, t := range found {
			if len(fields) == 5 && t.folder == folder && t.database == database && !t.ended {
				found[i].ended, found[i].failed, found[i].processor, found[i].took = true, fields[2] != "0", lasting(0), lasting(1)
			}
		}
	}
	return found
}

// packageCosts returns the costs of a step's completed test programs.
func packageCosts(all []testRun, step string) (found []cost) {
	for _, t := range all {
		if t.ended {
			found = append(found, cost{t.folder + " on " + t.database + " (" + step + ")", t.took, t.processor})
		}
	}
	return found
}

// progress says how many packages are done, which ones have been running longest, and which have failed. The go command
// prints results in the order of its arguments, so a failure may be known long before it is printed.
func progress(all []testRun, packages int, now time.Time) string {
	seen, open := map[string]bool{}, map[string]bool{}
	var running, failed []string
	for _, t := range all {
		seen[t.folder] = true
		if !t.ended && !open[t.folder] {
			open[t.folder] = true
			running = append(running, fmt.Sprintf("%s %s", t.folder, now.Sub(t.began).Round(time.Second)))
		}
		if t.failed && !slices.Contains(failed, t.folder) {
			failed = append(failed, t.folder)
		}
	}
	text := fmt.Sprintf("%d of %d packages", len(seen)-len(open), packages)
	if len(failed) > 0 {
		text += ", failed: " + strings.Join(failed, ", ")
	}
	if len(running) == 0 {
		return text + ", compiling"
	}
	return text + ", running: " + strings.Join(running[:min(3, len(running))], ", ")
}

// idleTime returns the processors' total idle time since boot; 0 if the kernel doesn't report it.
func idleTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseIdle(string(text))
}

// parseIdle adds idle and iowait, the fourth and fifth number of the first line, in units of 10 ms.
func parseIdle(stat string) (idle time.Duration) {
	first, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(first)
	if len(fields) < 6 || fields[0] != "cpu" {
		return 0
	}
	for _, f := range fields[4:6] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		idle += time.Duration(n) * 10 * time.Millisecond
	}
	return idle
}
