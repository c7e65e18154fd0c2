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

// costs names the file to which ondatabases adds what each test program cost.
const costs = "SLIPWAY_TEST_COSTS"

// costliest is how many packages the table at the end shows.
const costliest = 15

// cost says how long something took and how much processor time it used, with its children.
type cost struct {
	name            string
	took, processor time.Duration
}

// table writes the costs of steps, each with how busy it kept a processor (200 %: two of them),
// and of the packages that cost the most. Steps that ran beside others are in the sum of processor
// time, not in the time that the whole took.
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

// packageCosts lets ondatabases note what test programs cost, and returns how to read it once, at
// the end. A file that the environment names stays.
func packageCosts() (read func() []byte, err error) {
	name := os.Getenv(costs)
	if name != "" {
		return func() []byte { text, _ := os.ReadFile(name); return text }, nil
	}
	file, err := os.CreateTemp("", "slipway-costs-")
	if err != nil {
		return nil, err
	}
	name = file.Name()
	return func() []byte {
		defer os.Remove(name)
		text, _ := os.ReadFile(name)
		return text
	}, errors.Join(file.Close(), os.Setenv(costs, name))
}

// readCosts reads the lines of a file of costs: seconds of processor time, seconds, the
// database, and the folder. Folders are shown as seen from root.
func readCosts(text []byte, root string) (found []cost) {
	for line := range bytes.Lines(text) {
		fields := strings.SplitN(strings.TrimSpace(string(line)), " ", 4)
		if len(fields) < 4 {
			continue
		}
		processor, err := time.ParseDuration(fields[0] + "s")
		took, err2 := time.ParseDuration(fields[1] + "s")
		name, err3 := filepath.Rel(root, fields[3])
		if err != nil || err2 != nil || err3 != nil {
			continue
		}
		found = append(found, cost{name + " on " + fields[2], took, processor})
	}
	return found
}

// idleTime is for how long the processors have had nothing to do since the machine started, summed
// up. It is 0 where the kernel doesn't say.
func idleTime() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	return parseIdle(string(text))
}

// parseIdle adds up idle and iowait, the fourth and fifth number of the first line, which are
// hundredths of seconds.
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
