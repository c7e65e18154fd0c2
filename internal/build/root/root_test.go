package root

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway/internal/build/phpversion"
	"slipway/internal/platform/fault"
	"slipway/internal/platform/sandbox"
)

const testUID = 234569

type world struct {
	t     *testing.T
	roots *Roots
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	box, err := sandbox.New(sandbox.Config{Dir: filepath.Join(t.TempDir(), "sandbox")})
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Dir: filepath.Join(t.TempDir(), "data", "roots"), Sandbox: box, UID: testUID})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return &world{t, r}
}

// fake is a kind whose root contains dash and its libraries.
var fake = Kind{Name: "fake1", Title: "Fake 1", Suite: "trixie", Debian: "Debian 13", Until: "2999-01-01", Packages: []string{"dash"}, Try: []string{"/usr/bin/dash", "-c", "exit 0"}}

// script replaces mmdebstrap by a script that creates a root with dash. $V is its version, and more is run at its end.
func (w *world) script(version, more string) {
	w.t.Helper()
	libs, err := exec.Command("ldd", "/usr/bin/dash").Output()
	if err != nil {
		w.t.Fatal(err)
	}
	text := `#!/bin/sh
set -eu
for a; do case "$a" in */tree) to=$a;; esac; done
echo run >>` + w.runs() + `
mkdir -p "$to/usr/bin" "$to/usr/lib" "$to/etc" "$to/var/lib/dpkg" "$to/root"
ln -s usr/bin "$to/bin"
ln -s usr/lib "$to/lib"
ln -s usr/lib "$to/lib64"
cp /usr/bin/dash "$to/usr/bin/dash"
chmod 4755 "$to/usr/bin/dash"
echo secret >"$to/etc/shadow"
echo "1 upgraded, 0 newly installed"
echo "0 upgraded, 2 newly installed, 0 to remove"
echo "Get:1 http://mirror dash"
`
	for _, word := range strings.Fields(string(libs)) {
		if strings.HasPrefix(word, "/") {
			text += `mkdir -p "$to/usr/lib/` + strings.TrimPrefix(filepath.Dir(word), "/lib") + `"; cp ` + word + ` "$to/usr/lib/` +
				strings.TrimPrefix(strings.TrimPrefix(word, "/lib64"), "/lib") + "\"\n"
		}
	}
	text += `printf 'Package: dash\nVersion: ` + version + `\n' >"$to/var/lib/dpkg/status"` + "\n" + more + "\n"
	w.roots.c.command = filepath.Join(w.t.TempDir(), "mmdebstrap")
	if err := os.WriteFile(w.roots.c.command, []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) runs() string { return filepath.Join(filepath.Dir(w.roots.c.Dir), "runs") }

func (w *world) count() int {
	text, _ := os.ReadFile(w.runs())
	return strings.Count(string(text), "run")
}

// empty fails the test if an installation left files, or a root exists.
func (w *world) empty() {
	w.t.Helper()
	for _, dir := range []string{"new", "kept"} {
		if left, _ := os.ReadDir(filepath.Join(w.roots.c.Dir, dir)); len(left) > 0 {
			w.t.Errorf("%s has %v", dir, left)
		}
	}
}

// Concurrent callers share one installation of a root, and later ones find it installed.
func TestUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.script("1", "sleep 1")
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			l, err := w.roots.Use(t.Context(), fake, nil)
			if err != nil {
				t.Error(err)
				return
			}
			l.Release()
		})
	}
	group.Wait()
	l, err := w.roots.Use(t.Context(), fake, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	if n := w.count(); n != 1 {
		t.Errorf("the root was made %d times", n)
	}
	st, err := os.Stat(filepath.Join(l.Tree(), "usr/bin/dash"))
	if err != nil || st.Mode() != 0o755 {
		t.Errorf("dash has the mode %v, %v", st.Mode(), err)
	}
	for _, name := range []string{"root", "var", "etc/shadow"} {
		if _, err := os.Lstat(filepath.Join(l.Tree(), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(filepath.Join(w.roots.c.Dir, "new")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// An update makes a new root only if a package is newer, and deletes the old one once nothing uses it.
func TestUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.script("1", "")
	old, err := w.roots.Use(t.Context(), fake, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := func() (list []string) {
		all, err := w.roots.List()
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			list = append(list, x.ID)
		}
		return list
	}
	if err := w.roots.Install(t.Context(), fake, nil); err != nil || w.count() != 2 || len(ids()) != 1 {
		t.Errorf("the same packages: %v, %d runs, %v", err, w.count(), ids())
	}
	w.script("2", "")
	if err := w.roots.Install(t.Context(), fake, nil); err != nil || len(ids()) != 2 || ids()[1] != old.ID {
		t.Errorf("newer packages, while the old root is used: %v, %v", err, ids())
	}
	if gone, err := w.roots.Remove(t.Context(), old.ID); gone || err != nil {
		t.Errorf("a root in use was removed: %v", err)
	}
	next, err := w.roots.Use(t.Context(), fake, nil)
	if err != nil || next.ID == old.ID || next.Versions["dash"] != "2" {
		t.Fatalf("the old root is still used: %+v %v", next, err)
	}
	next.Release()
	old.Release()
	if err := w.roots.Sweep(t.Context()); err != nil || len(ids()) != 1 || ids()[0] != next.ID {
		t.Errorf("the old root is there: %v %v", ids(), err)
	}
}

// An installation that fails, is canceled, or whose programs don't work leaves nothing, and the error says what to do.
func TestFailure(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ more, details string }{
		"offline":   {`echo "E: Could not connect to deb.debian.org:80 (192.0.2.1)"; exit 100`, "--debian-mirror"},
		"disk":      {`echo "dpkg: error: No space left on device"; exit 1`, "the disk is full"},
		"otherwise": {`echo "E: Sub-process /usr/bin/dpkg returned an error code (1)"; exit 1`, "Sub-process /usr/bin/dpkg"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.script("1", tt.more)
			_, err := w.roots.Use(t.Context(), fake, nil)
			if f := fault.As(err); f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Details, tt.details) {
				t.Errorf("%v: %+v", err, f)
			}
			w.empty()
		})
	}
	t.Run("broken", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.script("1", `printf '#!/nowhere\n' >"$to/usr/bin/dash"`)
		if _, err := w.roots.Use(t.Context(), fake, nil); err == nil || !strings.Contains(err.Error(), "try Fake 1") {
			t.Errorf("%v", err)
		}
		w.empty()
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mark := filepath.Join(t.TempDir(), "child")
		w.script("1", `setsid sh -c 'while :; do date >`+mark+`; sleep 0.1; done' & sleep 1000`)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := w.roots.Use(ctx, fake, nil)
			failed <- err
		}()
		until(t, func() bool { _, err := os.Stat(mark); return err == nil })
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller: %v", err)
		}
		w.roots.Close()
		w.empty()
		if err := os.Remove(mark); err != nil {
			t.Fatal(err)
		}
		// Child processes outside the process group are dead too, so the file isn't written again.
		list, err := exec.Command("pgrep", "-f", mark).Output()
		if len(list) > 0 || err == nil {
			t.Errorf("still running: %s", list)
		}
	})
}

func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it didn't happen within 30 seconds")
		}
	}
}

// A constraint that the host's PHP doesn't satisfy gets a kind from the catalogue, preferably one that is installed.
func TestChoose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for constraint, want := range map[string]string{
		"^8.3": "php8.4", "": "php8.4", "~8.2.0": "php8.2", "^7.4": "php7.4", "8.4.*": "php8.4", ">=7.2 <8": "php7.4",
	} {
		if k, err := w.roots.choose(constraint); err != nil || k.Name != want {
			t.Errorf("%q: %q %v, want %s", constraint, k.Name, err, want)
		}
	}
	for _, constraint := range []string{"^9.1", "~8.3.0"} {
		if _, err := w.roots.choose(constraint); err == nil || !strings.Contains(fault.As(err).Details, "available: 8.4, 8.2, 7.4") {
			t.Errorf("%q: %v", constraint, err)
		}
	}
	there := filepath.Join(w.roots.c.Dir, "kept", "php8.2-123456")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(there, manifestName), []byte(`{"Kind":"php8.2"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if k, err := w.roots.choose("^8.1"); err != nil || k.Name != "php8.2" {
		t.Errorf("%q %v, want the one that is there", k.Name, err)
	}
	if k, err := w.roots.choose("^8.3"); err != nil || k.Name != "php8.4" {
		t.Errorf("%q %v", k.Name, err)
	}
}

// A mirror must be a URL.
func TestMirror(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"": true, "http://deb.debian.org/debian": true, "https://mirror.example/debian/": true,
		"deb.debian.org": false, "file:///srv": false, "http://": false, "http://a/ b": false, "http://a/[x]": false,
	} {
		if err := CheckMirror(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A root in use gets security updates after a week, an unused one doesn't.
func TestWeeklyUpdate(t *testing.T) {
	w := newWorld(t)
	w.script("1", "")
	Catalogue = append(Catalogue, fake)
	t.Cleanup(func() { Catalogue = Catalogue[:len(Catalogue)-1] })
	use := func() Root {
		t.Helper()
		l, err := w.roots.Use(t.Context(), fake, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Release()
		return l.Root
	}
	first := use()
	w.script("2", "")
	for _, tt := range []struct {
		later time.Duration
		runs  int
	}{{6 * 24 * time.Hour, 1}, {40 * 24 * time.Hour, 1}, {8 * 24 * time.Hour, 2}} {
		w.roots.now = func() time.Time { return first.Made.Add(tt.later) }
		if err := w.roots.update(t.Context()); err != nil || w.count() != tt.runs {
			t.Errorf("after %v: %d installations, %v", tt.later, w.count(), err)
		}
	}
	if next := use(); next.ID == first.ID || next.Versions["dash"] != "2" {
		t.Errorf("the old root is used: %+v", next)
	}
	if all, err := w.roots.List(); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

// The chosen Hugo is the oldest kind that isn't older than the project's version. Other tools have a single kind.
func TestToolKind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ tool, version, want string }{
		{"hugo", "", "hugo0.131"},
		{"hugo", "0.131.0", "hugo0.131"},
		{"hugo", "0.111.3", "hugo0.111"},
		{"hugo", "0.87.0", "hugo0.111"},
		{"hugo", "extended_0.120.4", "hugo0.131"},
		{"hugo", "0.152.2", "hugo0.131"},
		{"hugo", "latest", "hugo0.131"},
		{"bundle", "3.2", "ruby3.3"},
		{"mdbook", "0.4.40", "mdbook"},
		{"zola", "", ""},
		{"php", "", ""},
	} {
		if k, _ := toolKind(tt.tool, tt.version); k.Name != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.tool, tt.version, k.Name, tt.want)
		}
	}
}

// When this process is killed, its installation ends too, and the next process starts again.
func TestKilled(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("ROOT_TEST_KILLED"); dir != "" {
		w := newWorld(t)
		w.script("1", `setsid sh -c 'while :; do date >`+dir+`/mark; sleep 0.1; done' & sleep 1000`)
		_, err := w.roots.Use(t.Context(), fake, nil)
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "ROOT_TEST_KILLED="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	mark := filepath.Join(dir, "mark")
	until(t, func() bool { _, err := os.Stat(mark); return err == nil })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	until(t, func() bool { return exec.Command("pgrep", "-f", mark).Run() != nil })
}

// If mirrors have removed the security updates of a release without support, it is installed without them. A supported
// release isn't.
func TestEndedRelease(t *testing.T) {
	t.Parallel()
	for until, works := range map[string]bool{"2020-01-01": true, "2999-01-01": false} {
		w := newWorld(t)
		w.script("1", `for a; do case "$a" in *-security*) echo "Err:1 http://mirror dash"; echo "  404  Not Found"; exit 100;; esac; done`)
		k := fake
		k.Until = until
		l, err := w.roots.Use(t.Context(), k, nil)
		l.Release()
		if works != (err == nil) {
			t.Errorf("until %s: %v", until, err)
		}
		if !works {
			w.empty()
		}
	}
}

// While a program runs for a long time, the root of its kind is updated, but not afterwards. A release without support
// isn't updated.
func TestUpdateOfWhatRuns(t *testing.T) {
	w := newWorld(t)
	w.script("1", "")
	Catalogue = append(Catalogue, fake)
	t.Cleanup(func() { Catalogue = Catalogue[:len(Catalogue)-1] })
	l, err := w.roots.Use(t.Context(), fake, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	later := func(days, runs int) {
		t.Helper()
		w.roots.now = func() time.Time { return l.Made.Add(time.Duration(days) * 24 * time.Hour) }
		if err := w.roots.update(t.Context()); err != nil || w.count() != runs {
			t.Errorf("after %d days: %d installations, want %d, %v", days, w.count(), runs, err)
		}
	}
	for n, version := range []string{"2", "3", "4"} {
		w.script(version, "")
		later(50*(n+1), n+2)
	}
	if all, err := w.roots.List(); err != nil || len(all) != 2 || all[1].ID != l.ID || !all[0].Used.IsZero() {
		t.Errorf("%v %v", all, err)
	}
	Catalogue[len(Catalogue)-1].Until = l.Made.Add(199 * 24 * time.Hour).Format(time.DateOnly)
	later(200, 4)
	Catalogue[len(Catalogue)-1].Until = fake.Until
	l.Release()
	later(250, 4)
}

// With systemd, a dead process's installation is stopped before its files are deleted, and a proxy's password isn't
// part of any command line.
func TestUnit(t *testing.T) {
	w := newWorld(t)
	w.script("1", `test "$HTTP_PROXY" = http://me:secret@proxy:1`)
	w.roots.c.byUnit = true
	bin, said := t.TempDir(), filepath.Join(t.TempDir(), "said")
	left := filepath.Join(w.roots.c.Dir, "new", fake.Name, "left")
	for name, text := range map[string]string{
		"systemctl":   `echo "$0 $* $(ls ` + left + `)" >>` + said,
		"systemd-run": `echo "$0 $*" >>` + said + `; while test "$1" != --; do shift; done; shift; exec "$@"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("HTTP_PROXY", "http://me:secret@proxy:1")
	if err := errors.Join(os.MkdirAll(filepath.Dir(left), 0o700), os.WriteFile(left, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := w.roots.Use(t.Context(), fake, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
	text, err := os.ReadFile(said)
	unit := w.roots.unit(fake)
	lines := strings.Split(string(text), "\n")
	if err != nil || len(lines) != 4 || !strings.HasSuffix(lines[0], "systemctl kill --signal=SIGKILL "+unit+" "+left) ||
		!strings.HasSuffix(lines[1], "systemctl stop "+unit+" "+left) || !strings.Contains(lines[2], "--setenv=HTTP_PROXY ") ||
		strings.Contains(lines[2], "secret") {
		t.Errorf("%s %v", text, err)
	}
	if other := newWorld(t); other.roots.unit(fake) == unit {
		t.Error("two installations have one unit")
	}
}

// If the host's PHP lacks an extension of composer.json, a root that has it must be used; if no root can have it
// either, the host's PHP must be used. If such a root cannot be made, there must be an error.
func TestExtensions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, err := phpversion.Choose(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"json", "mbstring", "simplexml", "dom", "gmp", "imagick", "soap", "ldap", "mongodb"}
	missing := v.Lacks(all)
	if !slices.Contains(missing, "mongodb") || slices.Contains(missing, "json") {
		t.Fatalf("the host's PHP lacks %v", missing)
	}
	for _, x := range [][]string{nil, {"json"}, {"json", "mongodb"}} {
		if got, lease, err := w.roots.PHP(t.Context(), "", x, nil); err != nil || lease != nil || got.Number != v.Number {
			t.Errorf("%v: %+v %v, want the host's", x, got, err)
		}
	}
	if missing = slices.DeleteFunc(missing, func(s string) bool { return s == "mongodb" }); len(missing) == 0 {
		return // a host with all of them needs no root
	}
	w.script("1", "echo no packages here; exit 1")
	if _, _, err := w.roots.PHP(t.Context(), "", missing[:1], func(string, ...any) {}); err == nil {
		t.Errorf("with %s the host's PHP was taken, or a root was made of nothing", missing[0])
	}
}
