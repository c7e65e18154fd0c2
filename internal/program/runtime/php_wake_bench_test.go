package runtime

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/build/phpversion"
	"slipway/internal/program/php"
)

// BenchmarkWakePHP starts PHP-FPM in turns in its sandbox and without one, with the same configuration, and measures
// until the first byte of the first answer.
func BenchmarkWakePHP(b *testing.B) {
	w := phpWorld(b)
	s := w.phpSpec("wake", map[string]string{"index.php": "<?php echo 'hello';"})
	version, err := phpversion.Choose(b.Context(), "")
	ok(b, err)
	top := b.TempDir()
	ok(b, os.WriteFile(filepath.Join(top, "index.php"), []byte("<?php echo 'hello';"), 0o644))
	var ours, bare time.Duration
	for i := range b.N {
		s.ID = "wake" + strconv.Itoa(i)
		begun := time.Now()
		p, err := w.Start(b.Context(), s)
		ok(b, err)
		hello(b, AppDir, p.Open, p.Dial)
		ours += time.Since(begun)
		p.Stop(0)

		begun = time.Now()
		dial, stop := barePHP(b, version)
		hello(b, top, func(name string) (*os.File, bool, error) {
			f, err := os.Open(filepath.Join(top, name))
			return f, false, err
		}, dial)
		bare += time.Since(begun)
		stop()
	}
	b.ReportMetric(float64(ours.Microseconds())/1000/float64(b.N), "ms/wake")
	b.ReportMetric(float64(bare.Microseconds())/1000/float64(b.N), "ms/bare")
}

func hello(b *testing.B, top string, open func(string) (*os.File, bool, error), dial func(context.Context) (net.Conn, error)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.test/", nil)
	ok(b, err)
	site := &php.Site{Top: top, Front: "index.php", Open: open, Dial: dial}
	resp, err := site.RoundTrip(req)
	ok(b, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b.Fatalf("it answers with %d", resp.StatusCode)
	}
}

// barePHP starts PHP-FPM with a site's configuration but without a sandbox.
func barePHP(b *testing.B, v phpversion.Version) (dial func(context.Context) (net.Conn, error), stop func()) {
	b.Helper()
	dir := b.TempDir()
	pool := php.Pool{Memory: 256 << 20, Scratch: dir}
	places := map[string]string{}
	for at, text := range pool.Files() {
		places[at] = filepath.Join(dir, filepath.Base(at))
		ok(b, os.WriteFile(places[at], []byte(text), 0o644))
	}
	socket, err := listen(dir)
	ok(b, err)
	ok(b, unix.SetNonblock(int(socket.inside.Fd()), false)) // as the shim does
	argv := append(php.Argv(v), "--allow-to-run-as-root")
	for i, arg := range argv {
		if at, found := places[arg]; found {
			argv[i] = at
		}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), php.Env()...), []*os.File{socket.inside}
	ok(b, cmd.Start())
	socket.started()
	return socket.dial, func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); socket.close() }
}
