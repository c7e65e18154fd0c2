// Command builds measures the cost of the sandbox and the benefit of the caches. Results are ratios to a baseline
// measured in the same run.
//
// It needs npm, bubblewrap and the npm registry. It runs as root or as a normal user; as root, commands without a
// sandbox run under the same uid as those in it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"slipway/e2e/world"
	"slipway/internal/platform/sandbox"
)

// benchUID is a uid that no site has.
const benchUID = 199_997

func main() {
	rounds := flag.Int("rounds", 7, "Vite builds on each side")
	starts := flag.Int("starts", 100, "starts of a command that does nothing, on each side")
	projects := flag.String("projects", "vite-react,sveltekit,nuxt,next", "the real projects to build")
	var more flags
	flag.Var(&more, "serve",
		"a further flag of slipway serve, such as --outbound-allow=10.1.2.3/32 where the registry is private. Repeatable.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *starts, *rounds, strings.Split(*projects, ","), more); err != nil {
		fmt.Fprintln(os.Stderr, "bench/builds:", err)
		os.Exit(1)
	}
}

type flags []string

func (f *flags) String() string     { return strings.Join(*f, " ") }
func (f *flags) Set(s string) error { *f = append(*f, s); return nil }

// row is one row of the result.
type row struct{ what, ours, yardstick, ratio, goal string }

func run(ctx context.Context, starts, rounds int, projects, more []string) (err error) {
	dir, err := os.MkdirTemp("", "slipway-bench-builds-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the build user needs access
		return err
	}
	var rows []row
	for _, m := range []func() ([]row, error){
		func() ([]row, error) { return overhead(ctx, dir, starts, rounds) },
		func() ([]row, error) { return product(ctx, dir, projects, more) },
	} {
		got, err := m()
		if err != nil {
			return err
		}
		rows = append(rows, got...)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 3, ' ', 0)
	fmt.Fprintln(t, "what\tmeasured\tyardstick\tratio\tgoal")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.what, r.ours, r.yardstick, r.ratio, r.goal)
	}
	return t.Flush()
}

// project returns the Vite and React project of the end-to-end tests.
func project() string { return filepath.Join(world.Root(), "e2e/builds/testdata/projects/vite-react") }

// overhead alternates the same command with and without the sandbox, so that other load affects both.
func overhead(ctx context.Context, dir string, starts, rounds int) ([]row, error) {
	runner, err := sandbox.New(sandbox.Config{Dir: filepath.Join(dir, "sandbox")})
	if err != nil {
		return nil, err
	}
	work := filepath.Join(dir, "work")
	repo := filepath.Join(work, "repo")
	if err := os.CopyFS(repo, os.DirFS(project())); err != nil {
		return nil, err
	}
	install := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund")
	install.Dir = repo
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := sandbox.Own(work, benchUID); err != nil {
		return nil, err
	}
	measure := func(n int, argv ...string) (bare, boxed []time.Duration, err error) {
		for i := range n + 1 {
			at := time.Now()
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Dir, cmd.Env = repo, []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + work, "NODE_ENV=production"}
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: benchUID, Gid: benchUID}}
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				return nil, nil, fmt.Errorf("%s: %w\n%s", argv, err, out)
			}
			first := time.Since(at)
			var said bytes.Buffer
			at = time.Now()
			res, err := runner.Run(ctx, sandbox.Command{
				Argv:   argv,
				Dir:    sandbox.Root + "/repo",
				Work:   work,
				UID:    benchUID,
				Env:    []string{"NODE_ENV=production"},
				Limits: sandbox.Limits{Memory: 2 << 30},
				Stdout: &said,
				Stderr: &said,
			})
			if err != nil || !res.OK() {
				return nil, nil, fmt.Errorf("%s in the sandbox: %v, %w\n%s", argv, res, err, said.Bytes())
			}
			if i > 0 { // the first round warms up both
				bare, boxed = append(bare, first), append(boxed, time.Since(at))
			}
		}
		return bare, boxed, nil
	}
	bare, boxed, err := measure(starts, "/bin/true")
	if err != nil {
		return nil, err
	}
	b, s := quantile(bare, 0.5), quantile(boxed, 0.5)
	out := []row{{"start of a sandboxed command", ms(s), "the bare command " + ms(b), "+" + ms(s-b), "+20 ms"}}
	bare, boxed, err = measure(rounds, "/usr/bin/env", "node", "node_modules/vite/bin/vite.js", "build")
	if err != nil {
		return nil, err
	}
	b, s = quantile(bare, 0.5), quantile(boxed, 0.5)
	return append(out, row{
		"Vite build in the sandbox",
		ms(s),
		"the bare build " + ms(b),
		fmt.Sprintf("%+.1f %%", 100*(float64(s)/float64(b)-1)),
		"+3 %",
	}), nil
}

// product measures through the real program: second builds against first builds and builds without a sandbox, and the
// delay of log lines until a client receives them.
func product(ctx context.Context, dir string, projects, more []string) ([]row, error) {
	binary, err := world.Build(dir)
	if err != nil {
		return nil, err
	}
	w, err := world.New(binary, filepath.Join(dir, "world"))
	if err != nil {
		return nil, err
	}
	defer w.Close()
	registry, err := world.Registry()
	if err != nil {
		return nil, err
	}
	w.Flags = slices.Concat(w.Flags, registry, more)
	key, err := w.User("bench@example.test")
	if err != nil {
		return nil, err
	}
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	rows, err := real(ctx, dir, w, key, projects)
	if err != nil {
		return nil, err
	}
	delays, err := delay(ctx, w, key)
	if err != nil {
		return nil, err
	}
	return append(rows, row{
		fmt.Sprintf("log line to client, %d lines", len(delays)),
		"p99 " + ms(quantile(delays, 0.99)),
		"median " + ms(quantile(delays, 0.5)),
		"",
		"p99 200 ms",
	}), nil
}

func create(ctx context.Context, w *world.World, key, repo string) (site, deployment string, err error) {
	var made struct{ Data struct{ ID string } }
	body := map[string]any{"name": filepath.Base(repo), "type": "static", "repository": "git.test/" + repo, "branch": "main"}
	if err := w.Call(ctx, key, "POST", "/sites", body, &made); err != nil {
		return "", "", err
	}
	err = world.Until(ctx, 5*time.Millisecond, func() (bool, error) {
		var list struct{ Data []struct{ ID string } }
		err := w.Call(ctx, key, "GET", "/sites/"+made.Data.ID+"/deployments", nil, &list)
		if err == nil && len(list.Data) > 0 {
			deployment = list.Data[0].ID
		}
		return deployment != "", err
	})
	return made.Data.ID, deployment, err
}

// ended waits for a deployment's success and returns its duration.
func ended(ctx context.Context, w *world.World, key, id string) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err = world.Until(ctx, 20*time.Millisecond, func() (bool, error) {
		var d struct {
			Status, Error          string
			StartedAt, CompletedAt time.Time
		}
		if err := w.Call(ctx, key, "GET", "/deployments/"+id, nil, &d); err != nil {
			return false, err
		}
		if d.Status == "failed" || d.Status == "canceled" {
			cancel()
			return false, fmt.Errorf("deployment %s: %s", d.Status, d.Error)
		}
		took = d.CompletedAt.Sub(d.StartedAt)
		return d.Status == "success", nil
	})
	return took, err
}

// delay follows the log of a build that prints the time, and compares it with the time of arrival.
func delay(ctx context.Context, w *world.World, key string) ([]time.Duration, error) {
	src := filepath.Join(w.Dir, "stamps")
	err := world.WriteFiles(src, map[string]string{
		"slipway.toml": "[build]\ncommand = \"node build.cjs\"\noutput = \"dist\"\n",
		"build.cjs": `require('fs').mkdirSync('dist'); require('fs').writeFileSync('dist/index.html', 'x')
			let n = 0; const t = setInterval(() => { console.log('stamp ' + Date.now()); if (++n === 400) clearInterval(t) }, 17)`,
	})
	if err != nil {
		return nil, err
	}
	if _, err := w.Git.Commit("bench/stamps", "main", src, "bench"); err != nil {
		return nil, err
	}
	_, id, err := create(ctx, w, key, "bench/stamps")
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, "GET", "http://"+w.Listen+"/api/v1/deployments/"+id+"/logs", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Accept", "text/event-stream")
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	var took []time.Duration
	lines := bufio.NewScanner(a.Body)
	for lines.Scan() {
		now := time.Now()
		if strings.HasPrefix(lines.Text(), "event: end") {
			break
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		var line struct{ Message string }
		if !ok || json.Unmarshal([]byte(data), &line) != nil {
			continue
		}
		if stamp, ok := strings.CutPrefix(line.Message, "stamp "); ok {
			milli, err := strconv.ParseInt(stamp, 10, 64)
			if err != nil {
				return nil, err
			}
			took = append(took, now.Sub(time.UnixMilli(milli)))
		}
	}
	if len(took) < 400 {
		return nil, fmt.Errorf("only %d of 400 lines came: %w", len(took), lines.Err())
	}
	return took, nil
}

// quantile sorts durations and returns the q-th quantile (0 to 1).
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
