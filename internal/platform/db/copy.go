package db

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// CopyTo writes all of the database, as it is at one moment, to a new file, while it is
// being written to: SQLite's own copy, or what pg_dump writes. It returns which.
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
	err = postgres(ctx, d.url, "pg_dump", nil, f, "--format=plain", "--no-owner", "--no-privileges", "--encoding=UTF8")
	return "postgres", errors.Join(err, f.Close())
}

// LoadPostgres fills an empty PostgreSQL database with what CopyTo wrote, all of it or
// nothing.
func LoadPostgres(ctx context.Context, address string, r io.Reader) error {
	return postgres(ctx, address, "psql", r, io.Discard, "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1")
}

// postgres runs one of PostgreSQL's own programs on a database. The password goes by the
// environment, where other users of the host can't read it.
func postgres(ctx context.Context, address, program string, in io.Reader, out io.Writer, args ...string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("the PostgreSQL database can't be copied: %s is not installed here (apt-get install postgresql-client)", program)
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
	cmd := exec.CommandContext(ctx, program, append(args, "--dbname="+u.String())...)
	var said tail
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, filepath.Clean("/"), in, out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// tail holds the first of what a program complains of.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p[:min(len(p), max(0, 2000-len(*t)))]...)
	return len(p), nil
}
