package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// spin makes a program use a processor for a second before it listens, if its command has the argument as-set.
const spin = "\nif (process.argv[2] === 'as-set') for (const until = Date.now() + 1000; Date.now() < until;);\n"

// limited checks a process's processor limit by the numbers of its cgroup, which don't depend on the machine's load.
func (s appSite) limited(pid string, cpus float64) {
	s.t.Helper()
	g, err := cpuGroupOf(pid)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := float64(g.quota) / float64(g.period); got < cpus*0.999 || got > cpus*1.001 {
		s.t.Errorf("its control group has %d of %d µs, want %v of a processor", g.quota, g.period, cpus)
	}
	// The current period is only counted when it ends, and each processor may exceed the quota by a slice of 5 ms and a
	// tick.
	most := time.Duration(g.periods+2)*time.Duration(g.quota)*time.Microsecond + 100*time.Millisecond
	if g.used <= 0 || g.periods == 0 || g.used > most {
		s.t.Errorf(
			"it used %s in %d periods (%d throttled) of %d µs with a quota of %d µs, want %s at most", g.used,
			g.periods, g.throttled, g.period, g.quota, most,
		)
	}
	s.t.Logf(
		"a program with %v of a processor used %s in %d periods of %d µs, %d of them throttled", cpus, g.used,
		g.periods, g.period, g.throttled,
	)
}

// cpuGroup holds the processor limit and usage of a cgroup.
type cpuGroup struct {
	quota, period, periods, throttled int64
	used                              time.Duration
}

// cpuGroupOf reads the cgroup of a process, version 1 or 2 (cgroups(7)).
func cpuGroupOf(pid string) (g cpuGroup, err error) {
	unified, cpu, acct, err := cpuPlaces(pid)
	if err != nil {
		return g, err
	}
	read := func(dir, file string) string {
		text, e := os.ReadFile(filepath.Join(dir, file))
		if e != nil && err == nil {
			err = e
		}
		return strings.TrimSpace(string(text))
	}
	number := func(s string) int64 {
		n, e := strconv.ParseInt(s, 10, 64)
		if e != nil && err == nil {
			err = e
		}
		return n
	}
	stat := map[string]int64{}
	fill := func(dir string) {
		for line := range strings.Lines(read(dir, "cpu.stat")) {
			name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			stat[name] = number(n)
		}
	}
	if cpu != "" {
		fill(cpu)
		g.quota, g.period = number(read(cpu, "cpu.cfs_quota_us")), number(read(cpu, "cpu.cfs_period_us"))
		g.used = time.Duration(number(read(acct, "cpuacct.usage")))
	} else {
		fill(unified)
		quota, period, _ := strings.Cut(read(unified, "cpu.max"), " ")
		g.quota, g.period = number(quota), number(period)
		g.used = time.Duration(stat["usage_usec"]) * time.Microsecond
	}
	g.periods, g.throttled = stat["nr_periods"], stat["nr_throttled"]
	return g, err
}

// cpuPlaces returns the folders of a process's cgroups: the version 2 one, and the version 1 ones for cpu and cpuacct,
// which are empty on version 2.
func cpuPlaces(pid string) (unified, cpu, acct string, err error) {
	at := map[string]string{} // controller → path; "" is version 2
	member, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", "", "", err
	}
	for line := range strings.Lines(string(member)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for c := range strings.SplitSeq(f[1], ",") {
				at[c] = f[2]
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", "", "", err
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, _ := strings.Cut(strings.TrimSpace(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		switch r[0] {
		case "cgroup2":
			unified = filepath.Join(l[4], at[""])
		case "cgroup":
			for c := range strings.SplitSeq(r[2], ",") {
				switch c {
				case "cpu":
					cpu = filepath.Join(l[4], at[c])
				case "cpuacct":
					acct = filepath.Join(l[4], at[c])
				}
			}
		}
	}
	if unified == "" && cpu == "" {
		return "", "", "", fmt.Errorf("no control group holds process %s", pid)
	}
	return unified, cpu, acct, nil
}
