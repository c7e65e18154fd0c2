package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aead.dev/minisign"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
)

// The programs of these tests are copies of the test binary with a last line that sets their behavior.
const mark = "\nbehaves as "

type behaviour struct {
	About
	Serve string // "": works
}

// TestMain behaves as the line at the binary's end says.
func TestMain(m *testing.M) {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	b, found := behaves(exe)
	if !found {
		// HTTPS servers of these tests have this certificate.
		s := httptest.NewTLSServer(nil)
		http.DefaultTransport.(*http.Transport).TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
		s.Close()
		os.Exit(m.Run())
	}
	switch {
	case os.Args[1] == "version":
		json.NewEncoder(os.Stdout).Encode(b.About)
	case b.Serve == "panics":
		panic("as it was told")
	default:
		if err := serve(b, os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func behaves(file string) (b behaviour, found bool) {
	f, err := os.Open(file)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		panic(err)
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-1000), 1000))
	if err != nil {
		panic(err)
	}
	_, text, found := bytes.Cut(tail, []byte(mark))
	if found {
		if err := json.Unmarshal(text, &b); err != nil {
			panic(err)
		}
	}
	return b, found
}

// serve does a program's start: it locks the data, migrates the schema and reports that it is ready.
func serve(b behaviour, dir, addr string) error {
	ctx := context.Background()
	store := installation.Store{DataDir: dir}
	release, err := store.Lock()
	if err != nil {
		return err
	}
	defer release()
	d, _, err := store.Open(ctx, nil)
	if err != nil {
		return err
	}
	if strings.HasPrefix(b.Serve, "migrates") { // to a schema that no earlier program can read
		for _, sql := range []string{
			"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)", "UPDATE schema_readers SET schema_known = 9999",
		} {
			if err := d.Write(ctx, func(tx *db.Tx) error { _, err := tx.Exec(ctx, sql); return err }); err != nil {
				return err
			}
		}
	}
	if err := d.Close(); err != nil {
		return err
	}
	if b.Serve == "hangs" || b.Serve == "migrates and hangs" {
		<-time.After(24 * time.Hour) // Go ends a program in which all goroutines block
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	if b.Serve == "freezes" { // and ignores signals
		signal.Ignore(syscall.SIGTERM)
	}
	asked := 0
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 2 {
			switch b.Serve {
			case "turns bad":
				http.Error(w, "no", http.StatusInternalServerError)
			case "freezes":
				<-time.After(24 * time.Hour)
			case "dies", "migrates and dies":
				os.Exit(3)
			}
		}
	}))
}

// world is an installation whose service the test keeps running, as systemd would.
type world struct {
	Config
	t      *testing.T
	keys   minisign.PrivateKey
	public string

	mu      sync.Mutex
	stopped bool
	running *exec.Cmd
	lives   sync.WaitGroup

	manager  string
	restarts int // as systemd counts
}

func newWorld(t *testing.T) *world {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	w := &world{t: t, keys: private, public: string(text)}
	w.Config = Config{
		Store: installation.Store{DataDir: t.TempDir()}, Program: filepath.Join(t.TempDir(), "slipway"),
		Control: l.Addr().String(), Start: 2 * time.Minute, Watch: time.Second, Out: t.Output(),
	}
	manager := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/show" {
			w.mu.Lock()
			defer w.mu.Unlock()
			fmt.Fprintf(rw, "Type=notify\nNRestarts=%d\n", w.restarts)
			return
		}
		w.act(r.URL.Path[1:])
	}))
	t.Cleanup(manager.Close)
	w.manager = manager.URL
	w.Service = "curl --fail --silent --show-error " + manager.URL + "/ACTION"
	w.program(w.Program, behaviour{About: about("1.0.0")})
	w.act("start")
	t.Cleanup(func() { w.act("stop"); w.lives.Wait() })
	if err := w.ready(t.Context(), w.Program, w.Start, 0); err != nil {
		t.Fatal(err)
	}
	return w
}

func about(version string) About {
	return About{Version: version, Schema: 9000, Oldest: db.OldestReader}
}

// act does what systemctl would.
func (w *world) act(action string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = action == "stop"
	if w.running != nil {
		_ = w.running.Process.Signal(syscall.SIGTERM)
		if !w.stopped {
			return // it is started again once it has ended
		}
	} else if !w.stopped {
		w.start()
	}
}

// start starts the program, and restarts it until the service is stopped.
func (w *world) start() {
	c := exec.Command(w.Program, "serve", w.Store.DataDir, w.Control)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := c.Start()
	for errors.Is(err, syscall.ETXTBSY) { // another test forked while this program was being written
		<-time.After(10 * time.Millisecond)
		c = exec.Command(c.Path, c.Args[1:]...)
		err = c.Start()
	}
	if err != nil {
		w.t.Errorf("start: %v", err)
		return
	}
	w.running = c
	w.lives.Go(func() {
		_ = c.Wait()
		<-time.After(100 * time.Millisecond) // like a unit's RestartSec, so that a program that panics at once doesn't keep the machine busy
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running = nil
		if !w.stopped {
			w.restarts++
			w.start()
		}
	})
}

// program writes a program with this behavior.
func (w *world) program(file string, b behaviour) {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := os.ReadFile(exe)
	if err != nil {
		w.t.Fatal(err)
	}
	line, err := json.Marshal(b)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := writeProgram(file, io.MultiReader(bytes.NewReader(own), strings.NewReader(mark), bytes.NewReader(line))); err != nil {
		w.t.Fatal(err)
	}
}

// release writes a release to a new directory and returns its source.
func (w *world) release(version string, b behaviour) Source {
	w.t.Helper()
	dir := w.t.TempDir()
	b.Version = version
	program := filepath.Join(dir, "program")
	w.program(program, b)
	text, err := os.ReadFile(program)
	if err != nil {
		w.t.Fatal(err)
	}
	name := fmt.Sprintf("slipway_%s_linux_%s.tar.gz", version, runtime.GOARCH)
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		w.t.Fatal(err)
	}
	t := tar.NewWriter(z)
	for _, f := range []struct {
		name string
		text []byte
	}{{"README.md", []byte("read me")}, {"slipway", text}} {
		if err := t.WriteHeader(&tar.Header{Name: "slipway_" + version + "/" + f.name, Mode: 0o755, Size: int64(len(f.text))}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := t.Write(f.text); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := errors.Join(t.Close(), z.Close()); err != nil {
		w.t.Fatal(err)
	}
	sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(packed.Bytes()), name)
	for file, text := range map[string][]byte{name: packed.Bytes(), "SHA256SUMS": sums, "SHA256SUMS.minisig": minisign.Sign(w.keys, sums)} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	return Source{Archive: filepath.Join(dir, name), Keys: []string{w.public}}
}

// serves fails the test unless the service runs this version, is ready, and no temporary files are left.
func (w *world) serves(version string) {
	w.t.Helper()
	if err := w.ready(w.t.Context(), w.Program, w.Start, 0); err != nil {
		w.t.Errorf("the service: %v", err)
	}
	if b, _ := behaves(w.Program); b.Version != version {
		w.t.Errorf("%s is installed, want %s", b.Version, version)
	}
	for _, name := range []string{".new", ".tmp", ".previous.tmp"} {
		if _, err := os.Stat(w.Program + name); !errors.Is(err, fs.ErrNotExist) {
			w.t.Errorf("slipway%s is left: %v", name, err)
		}
	}
}

func (w *world) ended(want Outcome) State {
	w.t.Helper()
	x, err := Last(w.Store)
	if err != nil || x.Step != Ended || x.Outcome != want {
		w.t.Errorf("the upgrade ended as %s (%s) at %s, %v; want %s", x.Outcome, x.Why, x.Step, err, want)
	}
	return x
}

// If systemd reports that a program keeps ending before it is ready, the upgrade stops waiting and goes back.
func TestUpgradeGoesBackWhereTheProgramEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	control := filepath.Join(t.TempDir(), "systemctl")
	if err := os.WriteFile(control, []byte("#!/bin/sh\nexec curl --fail --silent --show-error "+w.manager+"/$2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.Service = control + " --no-block ACTION slipway.service"
	w.Start = time.Hour
	if err := w.Run(t.Context(), w.release("1.1.0", behaviour{About: about(""), Serve: "panics"})); err == nil {
		t.Error("a program that panics was taken")
	}
	if x := w.ended(Returned); !strings.Contains(x.Why, "it ended by itself") {
		t.Errorf("it was taken back because %s", x.Why)
	}
	w.serves("1.0.0")
}

// A program that works replaces the old one and can be undone for a week.
func TestUpgradeAndUndo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := w.Undo(t.Context()); err == nil {
		t.Error("there is something to undo before the first upgrade")
	}
	from := w.release("1.1.0", behaviour{About: about("")})
	from.Keys = append([]string{strangersKey(t)}, from.Keys...) // one trusted key is enough, as during a change of the key
	if err := w.Check(t.Context(), from); err != nil {
		t.Errorf("check: %v", err)
	}
	w.serves("1.0.0")
	if err := w.Run(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	w.serves("1.1.0")
	if x := w.ended(Upgraded); x.From.Version != "1.0.0" || x.To.Version != "1.1.0" {
		t.Errorf("it says that it went from %s to %s", x.From.Version, x.To.Version)
	}
	if err := w.Undo(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.serves("1.0.0")
	if err := w.Undo(t.Context()); err != nil { // undoes the undo
		t.Fatal(err)
	}
	w.serves("1.1.0")
	x, err := Last(w.Store)
	if err == nil {
		x.EndedAt = x.EndedAt.Add(-Patience)
		err = x.save(w.Store)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Undo(t.Context()); err == nil || !strings.Contains(err.Error(), "7 days") {
		t.Errorf("undo after a week: %v", err)
	}
}

// If the new program fails in any way, the old one is put back and serves again, and there is nothing to undo.
func TestUpgradeReturns(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"panics", "hangs", "turns bad", "freezes", "dies"} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if fails == "hangs" || fails == "panics" {
				w.Start = 15 * time.Second
			}
			w.Watch = 2 * time.Minute // programs that fail do so earlier
			err := w.Run(t.Context(), w.release("1.1.0", behaviour{about(""), fails}))
			if err == nil || !strings.Contains(err.Error(), "1.0.0 serves again") {
				t.Errorf("got %v", err)
			}
			w.Start = 2 * time.Minute
			w.serves("1.0.0")
			if x := w.ended(Returned); x.Why == "" {
				t.Error("nothing says why")
			}
			if err := w.Undo(t.Context()); err == nil {
				t.Error("an upgrade that did not take place was undone")
			}
		})
	}
}

// If the old program can't use the new schema, the database's copy is restored, unless the new program was ready: then
// a write may have been acknowledged, and the database is kept.
func TestUpgradeRestoresTheDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		serve string
		want  Outcome
	}{{"migrates and hangs", Returned}, {"migrates and dies", Stuck}} {
		t.Run(c.serve, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Start, w.Watch = 15*time.Second, 2*time.Minute
			if c.want == Stuck {
				w.Return = 15 * time.Second
			}
			err := w.Run(t.Context(), w.release("2.0.0", behaviour{About{"", 9999, 9999}, c.serve}))
			if err == nil {
				t.Error("it says that all went well")
			}
			x := w.ended(c.want)
			if c.want == Returned {
				w.Start = 2 * time.Minute
				w.serves("1.0.0")
				return
			}
			if _, err := os.Stat(x.Snapshot); err != nil || !strings.Contains(x.Why, "does not start either") {
				t.Errorf("%s; the copy: %v", x.Why, err)
			}
			if _, err := os.Stat(w.Store.Path("slipway.db")); err != nil {
				t.Errorf("the database of the new program: %v", err)
			}
		})
	}
}

// While the database's copy is restored, systemd's sockets are closed, because a connection would start the service.
func TestUpgradeClosesTheSockets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	control := filepath.Join(t.TempDir(), "systemctl")
	calls := control + ".calls"
	if err := os.WriteFile(control, []byte(`#!/bin/sh
echo "$*" >>`+calls+`
if [ "$2" = show ]; then echo TriggeredBy=slipway.socket slipway-other.socket; fi
exec curl --fail --silent --show-error `+w.manager+`/$2
`), 0o755); err != nil {
		t.Fatal(err)
	}
	w.Service = control + " --no-block ACTION slipway.service"
	if err := w.Run(t.Context(), w.release("2.0.0", behaviour{About{"", 9999, 9999}, "panics"})); err == nil {
		t.Error("it says that all went well")
	}
	w.ended(Returned)
	w.serves("1.0.0")
	text, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.Contains(line, " show ") {
			got = append(got, line)
		}
	}
	const units = " slipway.service slipway.socket slipway-other.socket"
	if want := []string{"--no-block restart slipway.service", "--no-block stop" + units, "--no-block start" + units}; !slices.Equal(got, want) {
		t.Errorf("systemd was asked for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A program installed by a package manager is watched too: it stays, or the old one is restored, and it can be undone.
func TestPackage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dpkg := func(version string, b behaviour) {
		t.Helper()
		b.Version = version
		w.program(w.Program+".dpkg-new", b)
		_ = os.Remove(w.Program + ".previous")
		if err := errors.Join(os.Link(w.Program, w.Program+".previous"), os.Rename(w.Program+".dpkg-new", w.Program)); err != nil {
			t.Fatal(err)
		}
	}
	dpkg("1.1.0", behaviour{About: about("")})
	if err := w.Package(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.serves("1.1.0")
	if x := w.ended(Upgraded); x.From.Version != "1.0.0" {
		t.Errorf("it says that it came from %s", x.From.Version)
	}
	if err := w.Undo(t.Context()); err != nil {
		t.Error(err)
	}
	w.serves("1.0.0")
	w.Watch = 2 * time.Minute
	dpkg("1.2.0", behaviour{about(""), "dies"})
	if err := w.Package(t.Context()); err == nil || !strings.Contains(err.Error(), "1.0.0 serves again") {
		t.Errorf("got %v", err)
	}
	w.ended(Returned)
	w.serves("1.0.0")
	if err := w.Package(t.Context()); err != nil { // configured a second time
		t.Error(err)
	}
	w.serves("1.0.0")
	// A program that can't report its version changes nothing.
	dpkg("1.3.0", behaviour{About{}, "panics"})
	if err := w.Package(t.Context()); err == nil || !strings.Contains(err.Error(), "not upgraded") {
		t.Errorf("got %v", err)
	}
	w.serves("1.0.0")
	// Without a running service nothing is watched.
	w.act("stop")
	w.lives.Wait()
	dpkg("1.4.0", behaviour{About: about("")})
	if err := w.Package(t.Context()); err != nil {
		t.Error(err)
	}
	if b, _ := behaves(w.Program); b.Version != "1.4.0" {
		t.Errorf("without a service %s is installed", b.Version)
	}
}

// power panics when a message is printed, like a power cut.
type power struct{ at string }

func (p *power) Write(b []byte) (int, error) {
	if strings.Contains(string(b), p.at) {
		runtime.Goexit()
	}
	return len(b), nil
}

// An upgrade interrupted at any step, as by a power cut, is completed when it is continued.
func TestUpgradeIsContinued(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		at      Step
		says    string // the message after the step is on disk
		fails   string
		version string
		want    Outcome
	}{
		{Prepared, "is verified", "", "1.0.0", Abandoned},
		{Swapped, "in the place of", "", "1.1.0", Upgraded},
		{Returning, "Going back", "dies", "1.0.0", Returned},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Watch = time.Second
			if c.fails != "" {
				w.Watch = 2 * time.Minute
			}
			cut := w.Config
			cut.Out = &power{c.says}
			from := w.release("1.1.0", behaviour{about(""), c.fails})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				t.Logf("it ended instead: %v", cut.Run(t.Context(), from))
			}()
			<-ended
			if x, err := Last(w.Store); err != nil || x.Step != c.at {
				t.Fatalf("it was cut at %s, %v; want %s", x.Step, err, c.at)
			}
			if !same(w.Program, w.Program+".previous") && c.at == Prepared {
				t.Error("no program is there that ends it after the next start")
			}
			if err := w.Run(t.Context(), from); err == nil || !strings.Contains(err.Error(), "--continue") {
				t.Errorf("another upgrade: %v", err)
			}
			err := w.Continue(t.Context())
			if (err == nil) != (c.want == Upgraded) {
				t.Errorf("continued: %v", err)
			}
			w.ended(c.want)
			w.serves(c.version)
			if err := w.Continue(t.Context()); err != nil {
				t.Errorf("continued once more: %v", err)
			}
		})
	}
}

// Untrusted or unusable releases are refused before anything is changed.
func TestUpgradeRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good := w.release("1.1.0", behaviour{About: about("")})
	stranger, _, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := stranger.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(dir string)) Source {
		s := w.release("1.1.0", behaviour{About: about("")})
		change(filepath.Dir(s.Archive))
		return s
	}
	write := func(file string, text []byte) {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		from Source
		says string
	}{
		"another's key": {Source{Archive: good.Archive, Keys: []string{string(other)}}, "not signed by a key that you trust"},
		"no key":        {Source{Archive: good.Archive}, "--release-key"},
		"no key at all": {Source{Archive: good.Archive, Keys: []string{"", " "}}, "--release-key"},
		"a bad key":     {Source{Archive: good.Archive, Keys: []string{"x"}}, "--release-key"},
		"another sum":   {Source{Archive: good.Archive, SHA256: strings.Repeat("0", 64)}, "has the SHA-256"},
		"a bad sum":     {Source{Archive: good.Archive, SHA256: "abc"}, "64 hexadecimal digits"},
		"plain http":    {Source{Archive: "http://127.0.0.1/" + filepath.Base(good.Archive), SHA256: strings.Repeat("0", 64)}, "https alone"},
		"another name":  {Source{Archive: "/tmp/slipway.tar.gz", Keys: good.Keys}, "is not named as a release is"},
		"another machine": {
			Source{Archive: strings.NewReplacer("amd64", "arm64", "arm64", "amd64").Replace(good.Archive), Keys: good.Keys}, "this machine is",
		},
		"older": {w.release("0.9.0", behaviour{About: about("")}), "is older than"},
		"changed archive": {with(func(dir string) {
			f, err := os.OpenFile(filepath.Join(dir, filepath.Base(good.Archive)), os.O_APPEND|os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString("x")
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}), "has the SHA-256"},
		"changed sums": {with(func(dir string) {
			write(filepath.Join(dir, "SHA256SUMS"), []byte("0  "+filepath.Base(good.Archive)+"\n"))
		}), "not signed"},
		"signed for others": {with(func(dir string) {
			sums := []byte(strings.Repeat("0", 64) + "  slipway_1.0.0_linux_amd64.tar.gz\n")
			write(filepath.Join(dir, "SHA256SUMS"), sums)
			write(filepath.Join(dir, "SHA256SUMS.minisig"), minisign.Sign(w.keys, sums))
		}), "doesn't list"},
		"a large signature": {with(func(dir string) {
			write(filepath.Join(dir, "SHA256SUMS.minisig"), bytes.Repeat([]byte("x"), maxSig+1))
		}), "larger than"},
		"no program": {with(func(dir string) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			if err := errors.Join(tar.NewWriter(z).Close(), z.Close()); err != nil {
				t.Fatal(err)
			}
			name := filepath.Base(good.Archive)
			sums := fmt.Appendf(nil, "%x  %s\n", sha256.Sum256(b.Bytes()), name)
			write(filepath.Join(dir, name), b.Bytes())
			write(filepath.Join(dir, "SHA256SUMS"), sums)
			write(filepath.Join(dir, "SHA256SUMS.minisig"), minisign.Sign(w.keys, sums))
		}), "has no program"},
	} {
		if err := w.Run(t.Context(), c.from); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	w.serves("1.0.0")
	if _, err := Last(w.Store); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was begun: %v", err)
	}
	release, err := lock(w.Store)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(t.Context(), good); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("two at once: %v", err)
	}
	release()
	w.act("stop")
	w.lives.Wait()
	if err := w.Run(t.Context(), good); err == nil || !strings.Contains(err.Error(), "doesn't run") {
		t.Errorf("of a service that is stopped: %v", err)
	}
	w.Image = w.Program // any existing file
	if err := w.Check(t.Context(), good); err == nil || !strings.Contains(err.Error(), "runs from a container image") {
		t.Errorf("in a container image: %v", err)
	}
}
