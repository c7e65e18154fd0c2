// Command cluster runs the tests of the engine on a real Kubernetes cluster, which it builds, starts and removes. The
// cluster has one node, or two for tests that lose one. It needs Debian, root and cgroups v1. It doesn't install the
// cluster on the machine: the cluster runs in its own namespaces, and built files are in the user's cache.
package main

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"slipway/scripts/internal/machine"
)

// version is the version of Kubernetes, as in the module.
const version = "v1.36.3"

// controllers lists the cgroup controllers that containers need.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

func main() {
	switch {
	case filepath.Base(os.Args[0]) == "pause": // called by that name in the image
		for {
			_ = syscall.Pause()
		}
	case len(os.Args) > 2 && os.Args[1] == inside:
		os.Exit(node(os.Args[2], os.Args[3:]))
	case len(os.Args) == 4 && os.Args[1] == inside2:
		os.Exit(node2(os.Args[2], os.Args[3]))
	}
	only := flag.String("run", ".", "tests to run, as go test takes it")
	bench := flag.String("bench", "", "benchmarks to run instead, as go test takes it")
	api := flag.Bool("api", false, "vet, and run the tests that need an API server and no node, if one is built")
	stories := flag.String("stories", "", "stories that TestStories and TestStoriesOfTwo tell on the cluster, as go test takes it; all that are told there if empty")
	chart := flag.Bool("chart", false, "run the test of the chart instead, with images as they are released")
	from := flag.String("from", "", "commit whose chart and images the test of the chart upgrades from, instead of this one's; with -chart")
	all := flag.Bool("all", false, "run the test of the chart at the same time, on a cluster of its own: most of either is waiting")
	flag.Parse()
	code, err := 0, error(nil)
	switch {
	case *api:
		code, err = alone()
	case *all:
		code, err = both()
	case *chart:
		os.Setenv(ofChart, "1")
		os.Setenv(ofEarlier, *from)
		code, err = run("^$", "^$")
	case *bench != "":
		code, err = run("^$", *bench)
	default:
		os.Setenv("SLIPWAY_CLUSTER_STORIES", cmp.Or(*stories, told))
		os.Setenv("SLIPWAY_CLUSTER_STORIES_OF_TWO", cmp.Or(*stories, toldByTwo))
		code, err = run(*only, "^$")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// told lists the tests of e2e/programs and e2e/wordpress that also run on the cluster. TestPHPOutOfMemory isn't among
// them, because it needs a kernel that kills a whole pod that is out of memory, as with cgroups v2; with v1 the kernel
// kills only the worker that asks for more.
const told = "TestRealApplications|TestInsideAnApplication|TestPHPApplication|TestBackupsOfStorage|TestInstances|TestStoppedDuringAStart|" +
	"TestWordPress$/^(life|network|update|replace|copy|archives|end)$"

// toldByTwo lists the tests of e2e/programs and e2e/nodes that run with two processes on one PostgreSQL, each request
// going to either. They needn't run with one process, too, which takes as long.
const toldByTwo = "TestSwitchesDropNothing|TestKilledDuringTraffic|TestBesideTheProgram|" +
	"TestNotificationsAndDatabaseAway|TestAnyNodeAnswersForPHP|TestDrain|TestNodeEndsUnderLoad"

// both runs the tests of the engine and shows their output, then the output of the chart's test, which ran meanwhile.
func both() (code int, err error) {
	if _, err := prepare(); err != nil { // once
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	// Build the shared client first: in parallel, each would compile it.
	for _, argv := range [][]string{{"go", "generate", "./internal/platform/sandbox"}, {"go", "-C", "cluster", "build", "-tags=slipway_init", "./kube"}} {
		if err := step(argv, "CGO_ENABLED=0"); err != nil {
			return 1, err
		}
	}
	var said bytes.Buffer
	chart, engine := exec.Command(self, "-chart"), exec.Command(self)
	chart.Stdout, chart.Stderr = &said, &said
	engine.Stdout, engine.Stderr = os.Stdout, os.Stderr
	if err := chart.Start(); err != nil {
		return 1, err
	}
	ofEngine := engine.Run()
	fmt.Println("▸ the chart, at the same time")
	ofChart := chart.Wait()
	os.Stdout.Write(said.Bytes())
	return 0, errors.Join(ofEngine, ofChart)
}

// prepare checks that this machine can run a cluster, and installs and builds what is missing. It returns the folder of
// the built files.
func prepare() (kept string, err error) {
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}) {
		return "", errors.New("this script has to be built with CGO_ENABLED=0: it is a program of images that have no C library")
	}
	if os.Getuid() != 0 {
		return "", errors.New("root is needed: a node mounts file systems and makes cgroups")
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		return "", errors.New("cgroups of version 1 are needed: this script has been tried with nothing else")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	kept = filepath.Join(cache, "slipway-cluster", version)
	// Download Debian's packages while the processors compile.
	installed := make(chan error, 1)
	go func() {
		err := machine.Install("containernetworking-plugins", "nftables", "iproute2", "nodejs", "mariadb-server", "php-fpm", "php-mysql", "php", "composer",
			"wordpress", "wordpress-theme-twentytwentythree", "postgresql", "redis-server")
		installed <- err
	}()
	if err := errors.Join(buildKubernetes(kept), <-installed); err != nil {
		return "", err
	}
	return kept, fetchContainerd(kept)
}

// run builds what is missing and runs the tests in a new cluster.
func run(only, bench string) (code int, err error) {
	kept, err := prepare()
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "slipway-cluster-") // short, because paths of sockets are limited
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return 1, fmt.Errorf("-run: %w", err)
	}
	builds := [][]string{
		{"go", "build", "-o", filepath.Join(dir, "pause"), "./scripts/cluster"}, // statically linked, unlike this process
		{"go", "-C", "cluster", "build", "-o", filepath.Join(dir, "slipway-program"), "./cmd/slipway-program"},
		{"go", "-C", "cluster", "build", "-o", filepath.Join(dir, "slipway-build"), "./cmd/slipway-build"},
		{"go", "-C", "cluster", "test", "-c", "-vet=off", "-tags=cluster", "-o", filepath.Join(dir, "cluster.test"), "./kube"},
	}
	if os.Getenv(ofChart) != "" {
		builds = builds[:1]
	}
	if wanted.MatchString("TestStories") || wanted.MatchString("TestStoriesOfTwo") || wanted.MatchString(testOfNodes) {
		builds = append(builds, [][]string{
			{"go", "generate", "./internal/platform/sandbox"},
			{"go", "-C", "cluster", "build", "-tags=slipway_init", "-o", filepath.Join(dir, "slipway-cluster"), "./cmd/slipway-cluster"},
			{"go", "build", "-tags=slipway_init", "-o", dir + "/", "./cmd/slipway", "./scripts/withpostgres"},
		}...)
		for _, of := range []string{"programs", "wordpress", "nodes"} {
			builds = append(builds, []string{"go", "test", "-c", "-vet=off", "-tags=slipway_init", "-o", filepath.Join(dir, of+".test"), "./e2e/" + of})
		}
	}
	for _, argv := range builds {
		if err := step(argv, "CGO_ENABLED=0"); err != nil {
			return 1, err
		}
	}
	if os.Getenv(ofChart) != "" {
		err = errors.Join(pauseImage(dir), buildChart(dir, kept))
	} else {
		err = errors.Join(pauseImage(dir), images(dir))
	}
	if err != nil {
		return 1, fmt.Errorf("make images: %w", err)
	}
	if err := leadToRegistry(dir); err != nil {
		return 1, err
	}
	group := "slipway-cluster-" + strings.ToLower(rand.Text()[:8])
	leave, err := enterGroups(group)
	defer leave()
	if err != nil {
		return 1, fmt.Errorf("make cgroups: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	c := exec.Command(self, inside, dir, kept, only, bench)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWCGROUP |
			syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // Pdeathsig depends on the thread
	err = c.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return max(ended.ExitCode(), 1), nil
	}
	return 0, err
}

// step runs a command and shows its output. GOGC is raised, because garbage collection takes up to half of the
// compilers' time. The chart's commands have a lower priority than the engine's, whose tests take longer.
func step(argv []string, env ...string) error {
	fmt.Println("▸", strings.Join(argv, " "))
	if os.Getenv(ofChart) != "" {
		argv = append([]string{"nice", "-n", "10"}, argv...)
	}
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = append(append(os.Environ(), "GOGC=400", "GOMEMLIMIT=3GiB"), env...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// components lists the names by which the program is called.
var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"}

// buildKubernetes builds Kubernetes from its modules, once: 5 minutes on two cores. Most of its packages are compiled
// without optimization, which takes a third less time, except those that dominate the API server's processor time.
func buildKubernetes(kept string) error {
	bin := filepath.Join(kept, "bin")
	all := filepath.Join(bin, "kubernetes")
	if _, err := os.Stat(all); err == nil {
		return nil
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	const v = "k8s.io/component-base/version"
	flags := "-s -w -X " + v + ".gitVersion=" + version + " -X " + v + ".gitMajor=1 -X " + v + ".gitMinor=36"
	argv := []string{
		"go", "-C", "scripts/cluster/kubernetes", "build", "-trimpath", "-ldflags", flags,
		"-gcflags=all=-dwarf=false", "-gcflags=k8s.io/...=-dwarf=false -N -l",
		"-gcflags=k8s.io/apimachinery/...=-dwarf=false", "-gcflags=k8s.io/apiserver/...=-dwarf=false", "-o", all + ".new", ".",
	}
	if err := step(argv, "CGO_ENABLED=0", "GOFLAGS="); err != nil {
		return fmt.Errorf("build Kubernetes: %w", err)
	}
	for _, name := range components {
		if err := os.Symlink("kubernetes", filepath.Join(bin, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return os.Rename(all+".new", all)
}

// fetchContainerd unpacks Debian's containerd and runc without installing them, which would start them.
func fetchContainerd(kept string) error {
	final := filepath.Join(kept, "deb")
	if _, err := os.Stat(final); err == nil {
		return nil
	}
	tmp, err := os.MkdirTemp(kept, "deb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	get := exec.Command("apt-get", "download", "-q", "containerd", "runc")
	get.Dir, get.Stderr = tmp, os.Stderr
	if err := get.Run(); err != nil {
		return fmt.Errorf("fetch containerd: %w", err)
	}
	packages, _ := filepath.Glob(filepath.Join(tmp, "*.deb"))
	for _, p := range packages {
		if err := step([]string{"dpkg-deb", "-x", p, filepath.Join(tmp, "all")}); err != nil {
			return err
		}
	}
	return os.Rename(filepath.Join(tmp, "all"), final)
}

// enterGroups creates a cgroup per controller and enters them; leave deletes them.
func enterGroups(group string) (leave func(), err error) {
	const all = "/sys/fs/cgroup/"
	leave = func() {
		for _, c := range controllers {
			_ = os.WriteFile(all+c+"/cgroup.procs", []byte("0"), 0o644)
			for range 100 { // killed processes are still exiting
				removeGroup(filepath.Join(all, c, group))
				if _, err := os.Stat(filepath.Join(all, c, group)); err != nil {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	for _, c := range controllers {
		dir := filepath.Join(all, c, group)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return leave, err
		}
		if c == "cpuset" { // must be filled before a process may enter
			for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
				text, err := os.ReadFile(all + "cpuset/" + name)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
				}
				if err != nil {
					return leave, err
				}
			}
			if err := os.WriteFile(filepath.Join(dir, "cgroup.clone_children"), []byte("1"), 0o644); err != nil {
				return leave, err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return leave, err
		}
	}
	return leave, nil
}

// removeGroup deletes a cgroup and those below it, which must have no processes.
func removeGroup(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroup(filepath.Join(dir, e.Name()))
		}
	}
	_ = syscall.Rmdir(dir)
}

// tail prints the end of a log.
func tail(name string) {
	f, err := os.Open(name)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.Seek(-3000, io.SeekEnd)
	text, _ := io.ReadAll(f)
	fmt.Printf("--- %s\n%s\n", filepath.Base(name), text)
}
