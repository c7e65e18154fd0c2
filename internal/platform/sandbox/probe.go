package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/sandbox/cgroup"
	"slipway/internal/platform/sandbox/seccomp"
)

// Check is one capability of the host.
type Check struct {
	Name     string
	OK       bool
	Required bool   // builds are refused without it
	Detail   string // one sentence: what is available, or what is missing and what to do
}

// Report is the result of [Probe].
type Report []Check

// Ready reports whether all required checks passed.
func (r Report) Ready() bool {
	for _, c := range r {
		if c.Required && !c.OK {
			return false
		}
	}
	return true
}

var version = regexp.MustCompile(`\b(\d+)\.(\d+)`)

// Probe checks what this host's kernel and settings allow a sandbox to do, and finally runs the canary as uid (see
// [Bubblewrap.Canary]). It runs at the service's start and in "slipway doctor", and takes well under a second.
func Probe(ctx context.Context, c Config, uid int) Report {
	var r Report
	add := func(name string, required, ok bool, yes, no string) {
		if !ok {
			yes = no
		}
		r = append(r, Check{name, ok, required, yes})
	}
	b, err := New(c)
	if err != nil {
		add("sandbox", true, false, "", "The sandbox cannot be prepared: "+err.Error()+".")
		return r
	}
	found, detail := bwrapVersion(ctx, b)
	add("bubblewrap", true, found, detail, detail)

	root := unix.Geteuid() == 0
	add("identity", false, root, "The service runs as root, so every site's builds run under a uid of their own.",
		"The service does not run as root, so all builds run under its own uid; only namespaces separate them.")
	// Not required: sysctls have exceptions per program, and the canary decides.
	add("user namespaces", false, userNamespaces(), "Unprivileged user namespaces are allowed.",
		"Unprivileged user namespaces are off: set user.max_user_namespaces above 0, and kernel.unprivileged_userns_clone=1 or "+
			"kernel.apparmor_restrict_unprivileged_userns=0 where these exist.")
	add("seccomp", true, seccomp.Supported(), "A seccomp filter for this processor architecture is built in.",
		"There is no seccomp filter for this processor architecture.")
	if root {
		err := launcher().stage
		add("mount namespace", true, err == nil,
			"Private directories can be mounted into a build without widening their permissions.",
			fmt.Sprintf("Mount namespaces are not permitted (%v): give the service CAP_SYS_ADMIN.", err))
	}
	add("helper", true, mayExecute(filepath.Dir(b.Self)), "The program that starts commands inside a sandbox can be executed.",
		fmt.Sprintf("Nothing in %s can be executed: mount its file system without noexec, or move the data.", filepath.Dir(b.Self)))
	r = append(r, b.probeCgroup()...)
	abi, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	add("landlock", false, e == 0, fmt.Sprintf("Landlock is available, ABI %d; it is not needed.", abi),
		"Landlock is not available; it is not needed.")
	add("terminals", false, root, fmt.Sprintf("Each command may have %d pseudo-terminals.", maxTerminals),
		"Pseudo-terminals are not limited per command, because only root can mount a limited set: one command can use all of the host's.")
	r = append(r, Check{
		"disk limit",
		true,
		false,
		"Disk use is checked ten times a second and a build over its limit is killed; no quota is needed.",
	})

	switch attempts, err := b.Canary(ctx, uid); {
	case err != nil:
		add("canary", true, false, "", "A trial sandbox did not run: "+err.Error()+".")
	default:
		var open []string
		for _, a := range attempts {
			if !a.Refused {
				open = append(open, a.Action)
			}
		}
		add("canary", true, len(open) == 0, fmt.Sprintf("A trial sandbox tried %d forbidden actions and each was refused.", len(attempts)),
			"A trial sandbox could: "+strings.Join(open, "; ")+".")
	}
	return r
}

func bwrapVersion(ctx context.Context, b *Bubblewrap) (bool, string) {
	p, err := b.bwrap()
	if err != nil {
		return false, "bubblewrap is not installed: apt-get install bubblewrap."
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p, "--version").Output()
	m := version.FindSubmatch(out)
	if err != nil || m == nil {
		return false, fmt.Sprintf("%s does not report its version.", p)
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	if major == 0 && minor < 8 {
		return false, fmt.Sprintf("%s is version %s, which cannot forbid nested user namespaces: 0.8 or newer is needed.", p, m[0])
	}
	return true, fmt.Sprintf("%s is version %s.", p, m[0])
}

func userNamespaces() bool {
	if _, err := os.Stat("/proc/self/ns/user"); err != nil {
		return false
	}
	for file, off := range map[string]string{
		"/proc/sys/user/max_user_namespaces":         "0",
		"/proc/sys/kernel/unprivileged_userns_clone": "0", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
	} {
		if text, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(text)) == off {
			return false
		}
	}
	return true
}

// probeCgroup creates a group as a run does and checks the result.
func (b *Bubblewrap) probeCgroup() Report {
	version := func(dir string, g *cgroup.Group) string {
		if dir == g.Unified {
			return "2"
		}
		return "1"
	}
	g, err := cgroup.New(b.hs, b.parent, "probe-"+newID(), Defaults.group())
	if err != nil {
		detail := "No cgroup can be created here, so memory and processes are limited per process and by polling, memfd_create is " +
			"refused, and cpu is not limited at all: start as root, or delegate a cgroup (systemd Delegate=yes with DelegateSubgroup=)."
		if !errors.Is(err, cgroup.ErrNone) {
			detail = "Creating a cgroup fails: " + err.Error() + "."
		}
		return Report{{"cgroup", false, false, detail}}
	}
	defer g.Remove(time.Second)
	r := Report{{"cgroup", true, false, fmt.Sprintf("Cgroups can be created at %s.", b.parent)}}
	for _, c := range []struct{ name, dir, otherwise string }{
		{"memory", g.Memory, "memory is limited by polling, and memfd_create is refused"},
		{"pids", g.Pids, "processes are limited by RLIMIT_NPROC"},
		{"cpu", g.CPU, "cpu is not limited"},
	} {
		if c.dir != "" {
			r = append(r, Check{
				"cgroup " + c.name,
				true,
				false,
				fmt.Sprintf("The %s controller works (version %s).", c.name, version(c.dir, g)),
			})
		} else {
			r = append(r, Check{
				"cgroup " + c.name,
				false,
				false,
				fmt.Sprintf("The %s controller is not available, so %s.", c.name, c.otherwise),
			})
		}
	}
	return r
}
