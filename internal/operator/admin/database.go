package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
	"slipway/internal/platform/text"
)

// CompactDatabase rewrites a SQLite database without its free space.
func CompactDatabase(ctx context.Context, s installation.Store, out io.Writer) error {
	if s.Database != "" {
		return errors.New("only SQLite needs this: PostgreSQL frees its space by itself")
	}
	d, unlock, err := openAlone(ctx, s)
	if err != nil {
		return err
	}
	defer unlock()
	defer d.Close()
	freed, err := d.Compact(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s freed\n", text.Size(freed))
	return nil
}

// openAlone opens the database of an installation that exists and that nothing serves, until unlock is called.
func openAlone(ctx context.Context, s installation.Store) (d *db.DB, unlock func(), err error) {
	if err := s.Find(); err != nil {
		return nil, nil, err
	}
	if unlock, err = s.Lock(); err != nil {
		return nil, nil, fmt.Errorf("stop the service first: %w", err)
	}
	if d, err = openStopped(ctx, s); err != nil {
		unlock()
	}
	return d, unlock, err
}

// MoveDatabase copies the database of an installation that nothing serves from SQLite to PostgreSQL, or back, and compares all rows. The
// database before stays as it is. What to set next is printed, and noted in the file of settings, if there is one.
func MoveDatabase(ctx context.Context, s installation.Store, to, settings string, out io.Writer) error {
	name := installation.SQLite
	switch u, err := url.Parse(to); {
	case to == installation.SQLite && s.Database == "", to == s.Database:
		return errors.New("--to: the database is there already")
	case to == installation.SQLite:
	case s.Database != "":
		return errors.New("--to: only sqlite, from PostgreSQL (pg_dump copies it to another PostgreSQL)")
	case err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql":
		return errors.New("--to: name an empty PostgreSQL database (postgres://…), or sqlite")
	case strings.Contains(u.RawQuery, "@") || strings.Contains(to, "#"): // the driver finds the password elsewhere than net/url
		return errors.New("--to: in the address, write %3F for ?, %40 for @ and %23 for # of the password")
	default:
		name = withoutPassword(*u)
	}
	d, unlock, err := openAlone(ctx, s)
	if err != nil {
		return err
	}
	defer unlock()
	defer d.Close()
	nodes, err := stopped(ctx, s, d)
	if err == nil && to == installation.SQLite && len(nodes) > 1 {
		err = errors.New("with SQLite there is one node: run slipway node forget for the others first")
	}
	if err != nil {
		return err
	}
	m, err := copyDatabase(ctx, s, d, to)
	if err != nil {
		return fmt.Errorf("the database was not moved, and stays as it is: %w", err)
	}
	if err := s.Moved(name); err != nil {
		return err
	}
	did := "copied and compared"
	if m.Before {
		did = "had been copied, and are equal"
	}
	next := "Remove the setting database (SLIPWAY_DATABASE) of slipway serve: the database is in the data directory."
	if name != installation.SQLite {
		next = "Set database = \"" + name + "\" for slipway serve. The password goes into SLIPWAY_DATABASE, with the whole address."
	}
	fmt.Fprintf(out, "%d rows of %d tables %s\n%s\n", m.Rows, m.Tables, did, next)
	return note(settings, "slipway database move, "+time.Now().UTC().Format(time.DateOnly)+": "+next)
}

// withoutPassword returns the address of a PostgreSQL database without what is secret in it.
func withoutPassword(u url.URL) string {
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	q.Del("password")
	q.Del("sslpassword")
	u.RawQuery = q.Encode()
	return u.String()
}

// copyDatabase makes the new database.
func copyDatabase(ctx context.Context, s installation.Store, from *db.DB, to string) (m db.Moved, err error) {
	file, place, at := s.Path("slipway.db.moving"), s.Path("slipway.db"), to
	if to == installation.SQLite {
		for _, name := range []string{file, file + "-wal", file + "-shm"} { // of an interrupted call
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return m, err
			}
		}
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL, 0o600) // SQLite makes files that others can read
		if err != nil {
			return m, err
		}
		f.Close()
		at = "sqlite:" + file
	}
	d, err := db.Open(ctx, db.Config{URL: at})
	if err != nil {
		return m, err
	}
	err = d.Sessions(ctx)
	if err == nil {
		m, err = db.Move(ctx, from, d)
	}
	if err == nil {
		_, err = stopped(ctx, s, from) // one that began meanwhile may have changed it
	}
	if err = errors.Join(err, d.Close()); err != nil || to != installation.SQLite {
		return m, err
	}
	if _, err := os.Stat(place); err == nil { // what a crash left in its log goes into the file
		old, err := db.Open(ctx, db.Config{URL: "sqlite:" + place})
		if err == nil {
			err = old.Close()
		}
		if err != nil {
			return m, err
		}
	}
	return m, db.Into(file, place, place+".before-"+time.Now().UTC().Format("20060102T150405"))
}

// note adds a comment to a file of settings.
func note(file, line string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n# " + strings.ReplaceAll(line, "\n", " ") + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}
