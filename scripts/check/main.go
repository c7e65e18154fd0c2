// Command check runs the checks that must pass, reports what it runs and how long each step took, and exits with 1 if
// one failed.
//
// A failed step shows its whole output, and the other steps still run, so that one run reports all problems.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"slipway/scripts/internal/machine"
)

// step is a command that must succeed.
type step struct {
	name    string
	argv    []string
	env     []string // in addition to this process's own
	without []string // runs instead of argv if that exits with unavailable …
	lost    string   // … and what is skipped then
	silent  bool     // any output on stdout is a failure
	shown   bool     // show output immediately
	beside  string   // nice value; the step runs beside the others and is reported at the end

	needs    func() error // returns what is missing to run the step. Optional.
	packages int          // packages whose tests ondatabases runs; 0 for other commands
}

// pictures is a page with the browser tests' screenshots, for people to look at.
var pictures = filepath.Join(cmp.Or(os.Getenv("SLIPWAY_SHOTS"), "bin/shots"), "index.html")

const unavailable = 77 // exit status of withpostgres without PostgreSQL

func main() {
	quick := flag.Bool("quick", false, "what takes less than two minutes and starts no server: for while one works")
	long := flag.Bool("all", false, "the stories too that take long, the race detector and known vulnerabilities")
	race := flag.Bool("race", false, "the race detector alone")
	flag.Parse()
	paint, out := machine.Colors(os.Stdout), newScreen(os.Stdout)
	if !*quick {
		switch { // minutes on two cores, with full and with empty caches
		case *long:
			announce(out, 60, 65)
		case *race:
			announce(out, 45, 48)
		default:
			announce(out, 15, 16)
		}
		stop := out.follow(func(took time.Duration) string { return "installing for " + took.String() })
		install(out)
		stop()
	}
	os.Remove(pictures) // from an earlier run, so that it isn't reported if this one makes none
	root, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	started, idle := time.Now(), idleTime()
	notes, err := makeNotes()
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var failed, missing, tests []string
	var spentOn, packages []cost
	title := func(s step) {
		fmt.Fprintf(out, "%s %s  %s\n", paint("36", "▸"), paint("1", s.name), paint("2", short(s.argv)))
	}
	end := func(s step, e ending) {
		spentOn = append(spentOn, cost{s.name, e.took, e.processor})
		if e.without != "" {
			missing = append(missing, s.lost)
			fmt.Fprintf(out, "  %s\n", paint("33;1", "NOT RUN, "+e.without+": "+s.lost))
		}
		if e.err == nil {
			fmt.Fprintf(out, "  %s %s\n", paint("32", "ok"), paint("2", rounded(e.took)))
			return
		}
		failed, tests = append(failed, s.name), append(tests, e.tests...)
		fmt.Fprintf(out, "  %s %s (%v)\n", paint("31;1", "FAILED"), paint("2", rounded(e.took)), e.err)
	}
	var beside []func()
	var todo []step
	stop := out.follow(func(took time.Duration) string { return "go list, which downloads modules, for " + took.String() })
	switch {
	case *quick:
		todo = quickSteps()
	case *race:
		todo = raceSteps(root)
	default:
		todo = steps(root, *long)
	}
	stop()
	for _, s := range todo {
		if s.beside == "" {
			title(s)
			before := len(notes.text())
			runs := func() []testRun { return readNotes(notes.text()[before:], root) }
			stop := out.follow(func(took time.Duration) string {
				if s.packages == 0 {
					return "running for " + took.String()
				}
				return took.String() + ", " + progress(runs(), s.packages, time.Now())
			})
			e := s.run(out)
			stop()
			packages = append(packages, packageCosts(runs(), s.name)...)
			end(s, e)
			continue
		}
		var said bytes.Buffer
		ended := make(chan ending, 1)
		go func() { ended <- s.run(&said) }()
		beside = append(beside, func() {
			title(s)
			stop := out.follow(func(took time.Duration) string { return "waiting for " + took.String() })
			e := <-ended
			stop()
			out.Write(said.Bytes())
			end(s, e)
		})
	}
	for _, tell := range beside {
		tell()
	}
	notes.remove()
	fmt.Println()
	table(os.Stdout, spentOn, packages, time.Since(started), idleTime()-idle)
	fmt.Println()
	if !*quick && !*long && !*race {
		missing = append(missing, "what takes long (make test-all)")
	}
	for _, name := range missing {
		fmt.Printf("%s %s was not run\n", paint("33;1", "NOTE"), name)
	}
	if _, err := os.Stat(pictures); err == nil {
		fmt.Printf("What the pages look like: %s\n", paint("36", pictures))
	}
	if len(tests) > 0 {
		fmt.Printf("%s\n%s\n", paint("31;1", "What failed, once more:"), strings.TrimRight(strings.Join(tests, ""), "\n"))
	}
	if len(failed) > 0 {
		fmt.Printf("%s in %s: %s\n", paint("31;1", "not green"), rounded(time.Since(started)), strings.Join(failed, ", "))
		os.Exit(1)
	}
	fmt.Printf("%s in %s\n", paint("32;1", "green"), rounded(time.Since(started)))
}

// needed lists the Debian packages that tests need besides Go, in groups. If a package of one group isn't available,
// the other groups are still installed.
var needed = [][]string{
	{
		"git", "bubblewrap", "curl", "nodejs", "npm", "chromium", "php-cli", "python3", "python3-cryptography",
		"python3-zstandard", "mariadb-server", "redis-server", "php-fpm", "php-gd", "php-mysql", "php", "wordpress",
		"wordpress-theme-twentytwentythree", "systemd", "shellcheck", "sqlite3", "minisign", "openssl", "zsh", "fish", "mandoc", "jq",
	},
	{"chromium-headless-shell"},                         // older Debian versions only have chromium, which works too
	{"php-fpm", "php-curl", "php-mbstring", "composer"}, // for PHP sites
	{"postgresql"},
	{"mmdebstrap", "debian-archive-keyring"}, // for tools of other releases of Debian
}

// announce prints the estimated minutes and what will be installed.
func announce(to io.Writer, warm, cold int) {
	fmt.Fprintf(to, "This takes about %d minutes on two cores, and %d the first time, when everything is downloaded and compiled.\n", warm, cold)
	if missing := machine.Missing(slices.Compact(slices.Sorted(slices.Values(slices.Concat(needed...))))...); len(missing) > 0 {
		fmt.Fprintf(to, "It installs these Debian packages: %s.\n", strings.Join(missing, ", "))
	} else {
		fmt.Fprintln(to, "The Debian packages that it needs are installed.")
	}
}

// install installs the missing packages.
func install(to io.Writer) {
	for _, packages := range needed {
		if err := machine.Install(packages...); err != nil {
			fmt.Fprintln(to, err)
		}
	}
}

// plainTags are the build tags of tests that need more than Go: a browser, and linters from the npm registry.
const plainTags = "-tags=browser,lint"

// tags are all build tags, including that of the sandbox's helper, which is embedded in the program.
const tags = plainTags + ",slipway_init"

// lean reduces garbage collection, which takes up to half of the time of compilers and linters. ondatabases removes it
// for the tests.
var lean = []string{"GOGC=400", "GOMEMLIMIT=3GiB"}

// goTest returns the step that tests packages with ondatabases.
func goTest(root string, paths []string, args ...string) step {
	return step{
		argv: slices.Concat([]string{"go", "test", "-count=1", "-timeout=1h", "-vet=off", "-exec=" + filepath.Join(root, "bin", "ondatabases")},
			args, paths),
		env: lean, shown: true, packages: len(paths),
	}
}

// steps returns the steps of make test or, if long is set, of make test-all.
func steps(root string, long bool) []step {
	bin := func(name string) string { return filepath.Join(root, "bin", name) }
	// Tests of one package also run in parallel. One more package than processors runs at a time, because the
	// end-to-end tests, which begin first, often wait for a build or a browser.
	tests := goTest(root, longestFirst(tested(plainTags, "./...")), tags, fmt.Sprintf("-short=%t", !long), fmt.Sprintf("-p=%d", runtime.NumCPU()+1))
	// Every test runs once, and packages with SQL statements again on PostgreSQL.
	tests.name, tests.lost = "tests", "services on PostgreSQL"
	tests.without = append([]string{bin("onscratch")}, tests.argv...)
	tests.argv = append([]string{bin("onscratch"), bin("withpostgres")}, tests.argv...)
	tests.env = append([]string{
		"CGO_ENABLED=0", "SLIPWAY_E2E_BUILT=" + bin("e2e"),
		"SLIPWAY_TEST_BOTH=" + strings.Join(onBoth(), string(filepath.ListSeparator)),
		"SLIPWAY_TEST_NODES=" + strings.Join(onNodes(), string(filepath.ListSeparator)),
	}, lean...)
	all := []step{
		helper,
		tools(long),
		{name: "formatting", argv: []string{bin("gofumpt"), "-l", "."}, silent: true, beside: "0"},
		{name: "modules", argv: []string{"go", "mod", "tidy", "-diff"}, beside: "0"},
		// The S3 server for tests is downloaded and built here, so that no test has to wait for it.
		{name: "object store", argv: []string{"go", "-C", "tools/versitygw", "tool", "-n", "versitygw"}, env: lean},
		{name: "stripe-mock", argv: []string{"go", "-C", "tools/stripemock", "tool", "-n", "stripe-mock"}, env: lean},
		{name: "program", argv: []string{"go", "build", "-tags=slipway_init", "-o", "bin/e2e/", "./cmd/slipway", "./scripts/withpostgres"}, env: lean},
		// vet compiles everything that tests and staticcheck need. If they ran at the same time, each would compile it.
		{name: "go vet", argv: []string{"go", "vet", tags, "./..."}, env: lean},
		// The end-to-end tests, which begin first, wait a lot. staticcheck uses that time.
		{name: "staticcheck", argv: []string{bin("staticcheck"), tags, "./..."}, beside: "10", env: lean},
		// This step runs only if an earlier `make test-cluster` has compiled Kubernetes and its client: it takes 12 s
		// of one processor, and ten minutes otherwise.
		{
			name: "cluster", argv: []string{bin("cluster"), "-api"}, without: []string{"true"},
			lost: "the engine on Kubernetes (make test-cluster builds what its tests need)", beside: "10", env: lean,
		},
		tests,
	}
	if long {
		all = append(all, step{name: "licenses", argv: []string{"go", "run", "./scripts/licenses"}, env: lean}, race(root))
		for _, module := range []string{".", "cluster", "terraform"} {
			all = append(all, step{
				name: "vulnerabilities", argv: []string{bin("govulncheck"), "-C", module, "-db", vulnerabilities, "./..."}, env: lean,
				needs: func() error { return answers(vulnerabilities + "/index/db.json") }, lost: "known vulnerabilities of the module " + module,
			})
		}
	}
	return all
}

// helper is the step that builds the sandbox's helper.
var helper = step{name: "helper", argv: []string{"go", "generate", "./internal/platform/sandbox"}, env: lean}

// tools downloads and builds the commands that other steps run: go run would hide their exit status, and downloads
// would print messages.
func tools(long bool) step {
	linters := "go build -modfile=tools/go.mod -o bin/ mvdan.cc/gofumpt honnef.co/go/tools/cmd/staticcheck"
	if long {
		linters += " golang.org/x/vuln/cmd/govulncheck"
	}
	own := "go build -o bin/ ./scripts/withpostgres ./scripts/ondatabases ./scripts/onscratch ./scripts/cluster"
	return step{name: "tools", argv: []string{"sh", "-ec", own + "\n" + linters}, env: lean}
}

// race returns the step that tests the product's packages with the race detector, which needs a C compiler.
func race(root string) step {
	s := goTest(root, tested("-tags=", "./internal/..."), "-tags=slipway_init", "-short", "-race")
	s.name, s.lost, s.needs = "race detector", "the race detector", compiler
	s.argv = append([]string{filepath.Join(root, "bin", "onscratch")}, s.argv...)
	s.env = append([]string{"CGO_ENABLED=1"}, lean...)
	return s
}

// raceSteps returns the steps of make race.
func raceSteps(root string) []step { return []step{helper, tools(false), race(root)} }

// compiler returns an error if there is no C compiler for cgo.
func compiler() error {
	out, err := exec.Command("go", "env", "CC").Output()
	if err != nil {
		return fmt.Errorf("go env CC: %w", err)
	}
	name, _, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if _, err := exec.LookPath(cmp.Or(name, "gcc")); err != nil {
		return fmt.Errorf("there is no C compiler: %w", err)
	}
	return nil
}

// vulnerabilities is the URL of the Go project's vulnerability database.
const vulnerabilities = "https://vuln.go.dev"

// answers returns an error if url can't be fetched.
func answers(url string) error {
	if said, err := exec.Command("curl", "-fsS", "-m", "30", "-o", os.DevNull, url).CombinedOutput(); err != nil {
		return fmt.Errorf("%s can't be fetched: %w %s", url, err, bytes.TrimSpace(said))
	}
	return nil
}

// slow lists packages whose tests start servers, sandboxes or a browser, or take half a minute.
var slow = []string{
	"slipway/e2e", "slipway/bench", "slipway/internal/program", "slipway/internal/backup",
	"slipway/internal/wordpress", "slipway/internal/web/dashboard", "slipway/internal/web/api",
	"slipway/internal/build/build", "slipway/internal/build/phpversion", "slipway/internal/build/toolchain", "slipway/internal/git/fetch",
	"slipway/internal/deploy/deploy", "slipway/internal/operator/upgrade", "slipway/internal/deploy/pushes", "slipway/internal/edge/edge",
	"slipway/internal/edge/certs", "slipway/internal/edge/http3", "slipway/internal/platform/blob",
	"slipway/internal/platform/gc", "slipway/internal/platform/sandbox", "slipway/internal/tenant/webhook", "slipway/scripts/release",
}

func isSlow(path string) bool {
	return slices.ContainsFunc(slow, func(s string) bool { return path == s || strings.HasPrefix(path, s+"/") })
}

// quickSteps returns the steps of make quick.
func quickSteps() []step {
	packages := slices.DeleteFunc(tested(plainTags, "./..."), isSlow)
	return []step{
		tools(false),
		{name: "formatting", argv: []string{"bin/gofumpt", "-l", "."}, silent: true},
		{name: "go vet", argv: []string{"go", "vet", plainTags, "./..."}},
		{
			name:  "tests",
			argv:  append([]string{"go", "test", "-count=1", "-vet=off"}, packages...),
			env:   []string{"CGO_ENABLED=0"},
			shown: true,
		},
	}
}

// longest lists the packages whose tests take the longest.
var longest = []string{
	"slipway/e2e/nodes", "slipway/e2e/wordpress", "slipway/e2e/builds", "slipway/e2e/programs", "slipway/e2e/browser", "slipway/e2e",
	"slipway/e2e/domains",
}

// longestFirst sorts the packages with the longest tests first, then the slow ones. go test begins them in this order;
// a long one that began last would leave a processor idle.
func longestFirst(packages []string) []string {
	rank := func(path string) int {
		if i := slices.Index(longest, path); i >= 0 {
			return i
		}
		if isSlow(path) {
			return len(longest)
		}
		return len(longest) + 1
	}
	slices.SortStableFunc(packages, func(a, b string) int { return rank(a) - rank(b) })
	return packages
}

// list returns the output of go list for packages.
func list(tags, format, packages string) string {
	out, err := exec.Command("go", "list", tags, "-f", format, packages).Output()
	if err != nil {
		var said *exec.ExitError
		if errors.As(err, &said) {
			err = fmt.Errorf("%w: %s", err, said.Stderr)
		}
		fmt.Println("go list:", err)
		os.Exit(1)
	}
	return string(out)
}

// tested returns the packages that have tests. It works without the sandbox's helper.
func tested(tags, packages string) []string {
	return strings.Fields(list(tags, "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}", packages))
}

// onBoth returns the folders of the packages that are tested on both databases: those with SQL statements, and those
// whose tests run several nodes with one database. Other packages use a database only through these.
func onBoth() []string {
	all := importing(list(plainTags, "{{.Dir}} {{.TestImports}} {{.XTestImports}}", "./internal/..."), "slipway/internal/platform/dbtest")
	return slices.DeleteFunc(all, func(dir string) bool { return !needsBoth(dir) })
}

// onNodes returns the folders of onBoth without SQL statements: only their tests with several nodes run on both
// databases.
func onNodes() []string {
	return slices.DeleteFunc(onBoth(), func(dir string) bool {
		names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
		return slices.ContainsFunc(names, func(name string) bool {
			text, err := os.ReadFile(name)
			return !strings.HasSuffix(name, "_test.go") && (err != nil || statement.Match(text))
		})
	})
}

var (
	statement = regexp.MustCompile(`\b(SELECT|INSERT INTO|UPDATE \w+|DELETE FROM|WITH \w+ AS)\s`)
	nodes     = regexp.MustCompile(`\bdbtest\.(URL|Open|Empty)\(`)
)

// needsBoth reports whether the sources in a folder contain SQL, or its tests open one database twice.
func needsBoth(dir string) bool {
	names, _ := filepath.Glob(filepath.Join(dir, "*.go"))
	return slices.ContainsFunc(names, func(name string) bool {
		sign := statement
		if strings.HasSuffix(name, "_test.go") {
			sign = nodes
		}
		text, err := os.ReadFile(name)
		return err != nil || sign.Match(text)
	})
}

// importing parses lines with a folder and, in brackets, what its tests import.
func importing(list, imported string) (found []string) {
	for line := range strings.Lines(list) {
		path, imports, _ := strings.Cut(strings.TrimSpace(line), " [")
		imports = "[" + imports
		if strings.Contains(strings.NewReplacer("[", " ", "]", " ").Replace(imports)+" ", " "+imported+" ") {
			found = append(found, path)
		}
	}
	return found
}

// ending is the result of a step.
type ending struct {
	err     error
	without string // why its requirements are missing
	took    time.Duration
	tests   []string // output lines about failed tests

	processor time.Duration // including children
}

// run runs a step and writes its result to to, with its output if it failed or is shown.
func (s step) run(to io.Writer) (e ending) {
	at := time.Now()
	if s.needs != nil {
		if err := s.needs(); err != nil {
			return ending{without: err.Error(), took: time.Since(at)}
		}
	}
	s.execute(s.argv, to, &e)
	if s.without != nil && exitCode(e.err) == unavailable {
		e.without = "what it needs is not there"
		s.execute(s.without, to, &e)
	}
	e.took = time.Since(at)
	return e
}

func (s step) execute(argv []string, to io.Writer, e *ending) {
	var kept, aside bytes.Buffer
	lines := &indented{to: to}
	out := io.Writer(&kept)
	if s.shown {
		out = lines
	}
	if s.beside != "" {
		argv = append([]string{"nice", "-n", s.beside}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = out, out
	if s.silent { // the go command prints downloads on stderr, which isn't a failure
		cmd.Stderr = &aside
	}
	e.err = cmd.Run()
	if e.err == nil && s.silent && kept.Len() > 0 {
		e.err = errors.New("these are not as they must be")
	}
	if e.err != nil {
		lines.Write(aside.Bytes())
		lines.Write(kept.Bytes())
	}
	if cmd.ProcessState != nil {
		e.processor += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	e.tests = lines.failed
}

// indented indents each line by two spaces, omits packages without tests, and keeps lines about failures to repeat them
// at the end.
type indented struct {
	to     io.Writer
	line   []byte
	failed []string
	more   int // lines that still belong to the last failure
}

// Lines repeated at the end, per failed test and in total.
const (
	linesOfATest   = 15
	linesOfFailing = 120
)

// keep stores a line about a failed test.
func (w *indented) keep(line string) {
	switch text := strings.TrimSpace(line); {
	case strings.HasPrefix(text, "--- FAIL"), strings.HasPrefix(text, "panic: "), strings.HasPrefix(text, "fatal error: "):
		w.more = linesOfATest
	case strings.HasPrefix(line, "FAIL\t"):
		w.more = 1
	case strings.HasPrefix(text, "--- "), strings.HasPrefix(line, "ok  \t"), strings.HasPrefix(line, "=== "):
		w.more = 0
	}
	if w.more > 0 && len(w.failed) < linesOfFailing {
		w.more--
		w.failed = append(w.failed, line)
	}
}

func (w *indented) Write(p []byte) (int, error) {
	w.line = append(w.line, p...)
	for {
		i := bytes.IndexByte(w.line, '\n')
		if i < 0 {
			return len(p), nil
		}
		if line := w.line[:i+1]; !bytes.Contains(line, []byte("[no test files]")) {
			fmt.Fprintf(w.to, "  %s", line)
			w.keep(string(line))
		}
		w.line = w.line[i+1:]
	}
}

// exitCode returns a command's exit status, or -1 if it has none.
func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return -1
}

func rounded(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// short abbreviates a command to one line.
func short(argv []string) string {
	s := strings.Join(argv, " ")
	if len(s) > 90 {
		s = s[:87] + "…"
	}
	return s
}
