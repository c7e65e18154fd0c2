package db

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
)

// CopyTo writes all of the database, as it is at one moment, to a new file, while it is being written to: SQLite's own copy, or the rows
// of PostgreSQL's tables (see dump). It returns which.
func (d *DB) CopyTo(ctx context.Context, path string) (dialect string, err error) {
	if d.single {
		// A connection of its own: the readers' can't write, and the writer goes on.
		conn, err := d.apart()
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, "VACUUM INTO $1", path); err != nil {
			return "", fmt.Errorf("copy database: %w", err)
		}
		return "sqlite", nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("copy database: %w", err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := errors.Join(d.dump(ctx, w), w.Flush(), f.Close()); err != nil {
		return "", fmt.Errorf("copy database: %w", err)
	}
	return "postgres", nil
}

// LoadPostgres fills an empty PostgreSQL database with what CopyTo wrote, all of it or nothing. What does not begin as
// that comes from pg_dump, which earlier programs ran, and needs psql.
func LoadPostgres(ctx context.Context, address string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	if first, err := in.Peek(len(dumpTitle)); err != nil || string(first) != dumpTitle {
		return psql(ctx, address, in)
	}
	d, err := Open(ctx, Config{URL: address})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.load(ctx, in); err != nil {
		return fmt.Errorf("load database: %w", err)
	}
	return nil
}

// psql has PostgreSQL's own program load statements into a database. The password goes by the environment, where other users of the
// host can't read it.
func psql(ctx context.Context, address string, in io.Reader) error {
	if _, err := exec.LookPath("psql"); err != nil {
		return errors.New("a database that pg_dump has written needs psql, which is not installed here (apt-get install postgresql-client)")
	}
	u, err := url.Parse(address)
	if err != nil {
		return errors.New("copy database: its address can't be read")
	}
	env := []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	if password, ok := u.User.Password(); ok {
		u.User = url.User(u.User.Username())
		env = append(env, "PGPASSWORD="+password)
	}
	q := u.Query()
	for name := range q {
		if !strings.HasPrefix(name, "ssl") && name != "host" && name != "port" && name != "connect_timeout" { // what only our driver knows
			q.Del(name)
		}
	}
	u.RawQuery = q.Encode()
	cmd := exec.CommandContext(ctx, "psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--dbname="+u.String())
	var said tail
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stderr = env, "/", in, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("psql: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}

// tail holds the first of what a program complains of.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p[:min(len(p), max(0, 2000-len(*t)))]...)
	return len(p), nil
}
