// Command bench measures what users wait for and what operators pay for, on the real program. It compares each result
// with a baseline measured in the same run.
//
// It runs the program through package world. Only data in large numbers (sites, deployments, domains with
// deliveries) is written directly to the database, because creating it through the API would take an hour. nginx, the
// baseline for TLS, is unpacked for the run if it isn't installed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"slipway/e2e/world"
)

// row is one row of the result.
type row struct {
	part, what, value, yardstick, ratio, goal string
}

const email = "bench@example.test" // the user who owns everything

// bench is one run.
type bench struct {
	ctx    context.Context
	dir    string
	binary string
	key    string
	part   string // heading to which rows are added
	rows   []row
	nginx  string // its version text

	postgres string // URL of a PostgreSQL cluster; empty: SQLite

	sites, live, files, rounds, deliveries int
	load, long                             time.Duration
	projects                               string   // to build
	serve                                  []string // further flags of slipway serve for builds
}

func main() {
	var b bench
	write := flag.String("write", "", "also write the rows into the tables of this Markdown file")
	only := flag.String("only", "",
		"only the measurements whose names are here, separated by commas: deploy, redeploy, client, deliveries, rate, read, tenants, memory, static, http3, wordpress, programs, builds, backups")
	flag.IntVar(&b.sites, "sites", 100_000, "sites in the database while reading")
	flag.IntVar(&b.live, "live", 10_000, "live sites for memory and start")
	flag.IntVar(&b.files, "files", 10_000, "files of the large site")
	flag.IntVar(&b.deliveries, "deliveries", 100_000, "webhook deliveries pending at the start")
	flag.IntVar(&b.rounds, "rounds", 15, "repetitions of a deployment")
	flag.DurationVar(&b.load, "load", 5*time.Second, "how long each request is repeated")
	flag.DurationVar(&b.long, "long", 3*time.Minute, "how long hostile accounts attack")
	flag.StringVar(&b.projects, "projects", "vite-react,sveltekit,nuxt,next", "the real projects to build")
	flag.Func("serve", "a further flag of slipway serve for builds, such as --outbound-allow=10.1.2.3/32 where the registry is private. Repeatable.",
		func(s string) error { b.serve = append(b.serve, s); return nil })
	flag.StringVar(&b.postgres, "postgres", os.Getenv("SLIPWAY_TEST_DSN"),
		"address of a PostgreSQL cluster; empty: SQLite. scripts/withpostgres sets it")
	flag.Parse()
	if flag.Arg(0) == visiting {
		if err := visitMain(); err != nil {
			fmt.Fprintln(os.Stderr, "visit:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b.ctx = ctx
	if err := b.run(*only, *write); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(only, write string) (err error) {
	if b.dir, err = os.MkdirTemp("", "slipway-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.binary, err = world.Build(b.dir); err != nil {
		return err
	}
	var failed []error
	for _, m := range []struct {
		name, part string
		run        func(*world.World) error
	}{
		{"deploy", "Deployments", b.deploy},
		{"redeploy", "Deployments", b.redeploy},
		{"client", "Command line", b.client},
		{"deliveries", "Webhooks", b.webhookLoad},
		{"rate", "Webhooks", b.webhookRate},
		{"read", "Reading", b.read},
		{"tenants", "Fairness", b.tenants},
		{"memory", "Memory and start", b.memory},
		{"static", "Files", b.static},
		{"http3", "Files", b.http3},
		{"wordpress", "WordPress", b.wordpress},
		{"programs", "Applications", b.programs},
		{"builds", "Builds", b.builds},
		{"backups", "Backups", b.backups},
	} {
		if only != "" && !slices.Contains(strings.Split(only, ","), m.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "… %s\n", m.name)
		b.part = m.part
		start := time.Now()
		if err := b.inWorld(m.name, m.run); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err)) // the other measurements still count
			fmt.Fprintf(os.Stderr, "  FAILED: %v\n", err)
		}
		if b.ctx.Err() != nil {
			break
		}
		fmt.Fprintf(os.Stderr, "  in %s\n", time.Since(start).Round(time.Second))
	}
	fmt.Print(b.table())
	if write == "" {
		return errors.Join(failed...)
	}
	document, err := os.ReadFile(write)
	if err != nil {
		return err
	}
	failed = append(
		failed,
		os.WriteFile(write, []byte(update(string(document), b.rows, b.machine(), time.Now().UTC().Format(time.DateOnly))), 0o644),
	)
	return errors.Join(failed...)
}

// inWorld runs one measurement on its own running installation.
func (b *bench) inWorld(name string, run func(*world.World) error) error {
	w, err := world.New(b.binary, filepath.Join(b.dir, name))
	if err != nil {
		return err
	}
	defer w.Close()
	if b.postgres != "" {
		url, err := emptyDatabase(b.ctx, b.postgres, "bench_"+name)
		if err != nil {
			return err
		}
		w.Flags = append(w.Flags, "--database", url)
	}
	if b.key, err = w.User(email); err != nil {
		return err
	}
	if err := w.Start(b.ctx); err != nil {
		return err
	}
	return run(w)
}

// add adds one row.
func (b *bench) add(r row) {
	r.part = b.part
	b.rows = append(b.rows, r)
	fmt.Fprintln(os.Stderr, strings.TrimRight(fmt.Sprintf("  %s: %s; %s; %s", r.what, r.value, r.yardstick, r.ratio), " ;"))
}

// timing adds one duration and its baseline.
func (b *bench) timing(what string, ours, yardstick time.Duration, name, goal string) {
	r := row{what: what, value: ms(ours), goal: goal}
	if yardstick > 0 {
		r.yardstick, r.ratio = name+" "+ms(yardstick), fmt.Sprintf("%.2f×", float64(ours)/float64(yardstick))
	}
	b.add(r)
}

func ms(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d < 10*time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// quantile sorts durations and returns the q-th quantile (0 to 1).
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func median(d []time.Duration) time.Duration { return quantile(d, 0.5) }
