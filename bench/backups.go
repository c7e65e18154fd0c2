package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/e2e/world"
)

// The site to back up: 20,000 files and a database, 1 GiB in total.
const (
	backupFiles = 20_000
	backupBytes = 960 << 20
	backupRows  = 64 << 10 // rows of 1 KiB
)

// backups measures a backup and a restore of a site of 1 GiB against tar, zstd and MariaDB's own programs, alternating
// on the same files and server.
func (b *bench) backups(w *world.World) error {
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return err
	}
	port, stop, err := mariaDB(b.ctx, filepath.Join(w.Dir, "maria"))
	if err != nil {
		return err
	}
	defer stop()
	w.Flags = append(w.Flags, "--mariadb", "mysql://admin:secret@"+port, "--database-size", "8192")
	if err := errors.Join(w.Stop(b.ctx), w.Start(b.ctx)); err != nil {
		return err
	}
	if err := b.repository(w, "page", map[string]string{"index.html": "hello"}); err != nil {
		return err
	}
	id, _, err := b.create(w, b.key, "Large", "page")
	if err != nil {
		return err
	}
	if err := b.ends(w, b.key, "/sites/"+id, "active", "error"); err != nil {
		return err
	}
	var x struct{ ID string }
	if err := w.Call(b.ctx, b.key, "POST", "/sites/"+id+"/databases", map[string]string{
		"engine": "mariadb",
		"name":   "main",
	}, &x); err != nil {
		return err
	}
	if err := b.ends(w, b.key, "/databases/"+x.ID, "active", "error"); err != nil {
		return err
	}
	storage := filepath.Join(w.Data, "storage", id, "uploads")
	if err := fillFolder(storage); err != nil {
		return err
	}
	client := sqlClient{port}
	schema := "s" + strings.TrimPrefix(x.ID, "db_")
	if err := client.fill(schema); err != nil {
		return err
	}

	tarball, dump := filepath.Join(w.Dir, "yard.tar.zst"), filepath.Join(w.Dir, "yard.sql.zst")
	var took, stored [2]time.Duration
	var size [2]int64
	best := func(i int, d time.Duration) {
		if took[i] == 0 || d < took[i] {
			took[i] = d
		}
	}
	var first string
	var second time.Duration
	for round := range 3 {
		os.Remove(tarball)
		os.Remove(dump)
		start := time.Now()
		if err := pipe(b.ctx, tarball, exec.Command("tar", "-C", storage, "-cf", "-", "."),
			exec.Command("zstd", "-q", "--stdout")); err != nil {
			return err
		}
		if err := pipe(b.ctx, dump,
			client.command("mariadb-dump", "--single-transaction", "--quick", "--routines", "--triggers", "--hex-blob", schema),
			exec.Command("zstd", "-q", "--stdout")); err != nil {
			return err
		}
		syscall.Sync()
		best(1, time.Since(start))
		// Each round has its own repository: content that is already stored isn't stored again.
		if err := w.Stop(b.ctx); err != nil {
			return err
		}
		w.Flags = append(w.Flags, "--backup-to", filepath.Join(w.Dir, fmt.Sprintf("place%d", round)))
		if err := w.Start(b.ctx); err != nil {
			return err
		}
		if err := w.Call(b.ctx, b.key, "DELETE", "/backups/"+first, nil, nil); first != "" && err != nil {
			return err
		}
		got, err := b.takeBackup(w, id)
		if err != nil {
			return err
		}
		first, size[0] = got.ID, got.StoredBytes
		best(0, got.took)
	}
	if err := b.verified(w, first); err != nil {
		return err
	}
	b.timing(fmt.Sprintf("backup of 1 GiB, %d files and a database", backupFiles), took[0], took[1],
		"tar \\| zstd and mariadb-dump \\| zstd, synced", "≤ 1.2×")

	// Each round changes every 101st file and 1% of the rows, different ones each time.
	for round := range 3 {
		if err := change(storage, 7+round); err != nil {
			return err
		}
		client.must(fmt.Sprintf("UPDATE `%s`.t SET x = REVERSE(x) WHERE id %% 100 = %d", schema, 7+round))
		got, err := b.takeBackup(w, id)
		if err != nil {
			return err
		}
		if err := b.verified(w, got.ID); err != nil {
			return err
		}
		if second == 0 || got.took < second {
			second = got.took
		}
		size[1] = max(size[1], got.StoredBytes)
	}
	b.add(row{
		what:      "second backup, 1 % changed: time",
		value:     ms(second),
		yardstick: "first " + ms(took[0]),
		ratio:     fmt.Sprintf("%.3f×", float64(second)/float64(took[0])),
		goal:      "< 0.1×",
	})
	b.add(row{
		what:      "second backup, 1 % changed: bytes stored",
		value:     fmt.Sprintf("%.1f MB", float64(size[1])/1e6),
		yardstick: fmt.Sprintf("first %.1f MB", float64(size[0])/1e6),
		ratio:     fmt.Sprintf("%.3f×", float64(size[1])/float64(size[0])),
		goal:      "< 0.1×",
	})

	for range 2 {
		out := filepath.Join(w.Dir, "yard")
		os.RemoveAll(out)
		os.MkdirAll(out, 0o755)
		client.must("DROP DATABASE IF EXISTS yard; CREATE DATABASE yard")
		syscall.Sync()
		start := time.Now()
		if err := pipe(b.ctx, "", exec.Command("zstd", "-q", "-d", "--stdout", tarball),
			exec.Command("tar", "-C", out, "-xf", "-")); err != nil {
			return err
		}
		if err := pipe(b.ctx, "", exec.Command("zstd", "-q", "-d", "--stdout", dump), client.command("mariadb", "yard")); err != nil {
			return err
		}
		syscall.Sync()
		if d := time.Since(start); stored[1] == 0 || d < stored[1] {
			stored[1] = d
		}
		start = time.Now()
		var o struct{ ID string }
		if err := w.Call(b.ctx, b.key, "POST", "/backups/"+first+"/restore", nil, &o); err != nil {
			return err
		}
		if err := b.ends(w, b.key, "/operations/"+o.ID, "success", "failed"); err != nil {
			return err
		}
		if d := time.Since(start); stored[0] == 0 || d < stored[0] {
			stored[0] = d
		}
	}
	b.timing("restore of it, with a backup of what is there first", stored[0], stored[1], "zstd -d \\| tar x and mariadb, synced", "≤ 1.2×")
	return nil
}

type takenBackup struct {
	ID, Status  string
	StoredBytes int64
	took        time.Duration
}

// takeBackup takes a backup and measures it, without the verification that follows.
func (b *bench) takeBackup(w *world.World, site string) (x takenBackup, err error) {
	start := time.Now()
	if err := w.Call(b.ctx, b.key, "POST", "/sites/"+site+"/backups", nil, &x); err != nil {
		return x, err
	}
	if err := b.ends(w, b.key, "/backups/"+x.ID, "completed", "failed"); err != nil {
		return x, err
	}
	x.took = time.Since(start)
	return x, w.Call(b.ctx, b.key, "GET", "/backups/"+x.ID, nil, &x)
}

// verified waits until a backup is verified, so that the next measurement doesn't include it.
func (b *bench) verified(w *world.World, id string) error {
	return world.Until(b.ctx, 100*time.Millisecond, func() (bool, error) {
		var x struct{ VerifiedAt, Error *string }
		if err := w.Call(b.ctx, b.key, "GET", "/backups/"+id, nil, &x); err != nil {
			return false, err
		}
		if x.Error != nil {
			return false, errors.New(*x.Error)
		}
		return x.VerifiedAt != nil, nil
	})
}

// fillFolder writes files of various sizes, half of which are compressible.
func fillFolder(dir string) error {
	r := mathrand.New(mathrand.NewPCG(1, 2))
	noise := make([]byte, 8<<20)
	rand.Read(noise)
	text := bytes.Repeat([]byte("<p>The quick brown fox jumps over the lazy dog of the site.</p>\n"), 8<<14)
	for i := range backupFiles {
		sub := filepath.Join(dir, fmt.Sprintf("%03d", i/100))
		if i%100 == 0 {
			if err := os.MkdirAll(sub, 0o755); err != nil {
				return err
			}
		}
		from := noise
		if i%2 == 0 {
			from = text
		}
		n := backupBytes/backupFiles/2 + r.IntN(backupBytes/backupFiles)
		at := r.IntN(len(from) - n)
		content := append([]byte(fmt.Sprintf("%d\n", i)), from[at:at+n]...)
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("%d.bin", i)), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// change overwrites every 101st file; every other one has an even number and is compressible.
func change(dir string, from int) error {
	for i := from; i < backupFiles; i += 101 {
		name := filepath.Join(dir, fmt.Sprintf("%03d", i/100), fmt.Sprintf("%d.bin", i))
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, append(text, "changed"...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mariaDB starts a separate server and returns its address.
func mariaDB(ctx context.Context, dir string) (address string, stop func(), err error) {
	ports, err := world.FreePorts(1)
	if err != nil {
		return "", nil, err
	}
	_, port, _ := strings.Cut(ports[0], ":")
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, err
	}
	if out, err := exec.Command("mariadb-install-db", "--no-defaults", "--user=root", "--basedir=/usr",
		"--datadir="+data, "--tmpdir="+dir, "--skip-test-db",
		"--auth-root-authentication-method=normal").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("mariadb-install-db: %w: %s", err, out)
	}
	init := filepath.Join(dir, "init.sql")
	if err := os.WriteFile(init,
		[]byte("DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\nCREATE USER admin@'%' IDENTIFIED BY 'secret';\nGRANT ALL PRIVILEGES ON *.* TO admin@'%' WITH GRANT OPTION;\n"),
		0o600); err != nil {
		return "", nil, err
	}
	cmd := exec.Command("mariadbd", "--no-defaults", "--user=root", "--basedir=/usr", "--datadir="+data,
		"--tmpdir="+dir, "--socket="+filepath.Join(dir, "s"), "--bind-address=127.0.0.1", "--port="+port,
		"--init-file="+init, "--innodb-buffer-pool-size=256M", "--max-allowed-packet=64M", "--performance-schema=OFF")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() { cmd.Process.Kill(); cmd.Wait() }
	err = world.Until(ctx, 50*time.Millisecond, func() (bool, error) {
		_, err := sqlClient{ports[0]}.run("SELECT 1")
		return err == nil, nil
	})
	if err != nil {
		stop()
	}
	return ports[0], stop, err
}

// sqlClient runs MariaDB's own client.
type sqlClient struct{ address string }

func (c sqlClient) command(program string, args ...string) *exec.Cmd {
	host, port, _ := strings.Cut(c.address, ":")
	cmd := exec.Command(program, append([]string{"--no-defaults", "--host=" + host, "--port=" + port, "--user=admin"}, args...)...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD=secret")
	return cmd
}

func (c sqlClient) run(q string) (string, error) {
	out, err := c.command("mariadb", "--batch", "--skip-column-names", "--execute="+q).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%.200s: %w: %.1000s", q, err, out)
	}
	return string(out), err
}

func (c sqlClient) must(q string) string {
	out, err := c.run(q)
	if err != nil {
		panic(fmt.Sprintf("%s: %v: %s", q, err, out))
	}
	return out
}

func (c sqlClient) fill(schema string) error {
	cmd := c.command("mariadb", schema)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintln(in, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(100), x TEXT, KEY (name));")
	r := mathrand.New(mathrand.NewPCG(3, 4))
	for i := 0; i < backupRows; {
		fmt.Fprint(in, "INSERT INTO t VALUES ")
		for k := range 500 {
			if k > 0 {
				fmt.Fprint(in, ",")
			}
			fmt.Fprintf(in, "(%d,'post %d','%s%x')", i, r.IntN(1000), strings.Repeat("Some words of a post. ", 30), r.Uint64())
			i++
		}
		fmt.Fprintln(in, ";")
	}
	in.Close()
	return cmd.Wait()
}

// pipe runs two programs: the first one's output goes to the second, whose output goes to a file.
func pipe(_ context.Context, file string, from, to *exec.Cmd) (err error) {
	if to.Stdin, err = from.StdoutPipe(); err != nil {
		return err
	}
	if file != "" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer f.Close()
		to.Stdout = f
	}
	from.Stderr, to.Stderr = os.Stderr, os.Stderr
	if err := to.Start(); err != nil {
		return err
	}
	if err := from.Run(); err != nil {
		return err
	}
	return to.Wait()
}
