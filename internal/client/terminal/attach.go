package terminal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"

	"golang.org/x/term"

	"slipway/internal/client/rest"
)

// ErrDisabled is returned if the site doesn't allow terminals.
var ErrDisabled = errors.New("the terminal is not enabled for this site: enable it on its Terminal page in the dashboard")

// Attach runs a command of the site at this process's terminal until it ends, and returns its exit code. An empty
// command starts a shell.
func Attach(ctx context.Context, c *rest.Client, path, command string) (code int, err error) {
	out := screen{os.Stdout}
	q, now := url.Values{}, out.Size()
	if command != "" {
		q.Set("command", command)
	}
	q.Set("columns", strconv.Itoa(now.Columns))
	q.Set("rows", strconv.Itoa(now.Rows))
	conn, err := c.Socket(ctx, path+"/terminal?"+q.Encode(), MaxMessage)
	var no *rest.Error
	if errors.As(err, &no) && no.Code == "terminal_disabled" {
		return 0, ErrDisabled
	}
	if err != nil {
		return 0, err
	}
	in := int(os.Stdin.Fd())
	before, err := term.MakeRaw(in) // pass Ctrl-C and other keys to the command
	if err != nil {
		_ = conn.CloseNow()
		return 0, err
	}
	defer func() { _ = term.Restore(in, before) }()
	return Run(ctx, conn, os.Stdin, out)
}

// screen is a terminal of this system.
type screen struct{ *os.File }

// Size returns its size.
func (s screen) Size() (now Size) {
	now.Columns, now.Rows, _ = term.GetSize(int(s.Fd()))
	return now
}

// prefixed matches the variables of a database.
var prefixed = regexp.MustCompile(`^([A-Z][A-Z0-9_]*_)?DB_SOCKET$`)

// Database returns the command that opens the MariaDB client on the database with these variables.
func Database(env []string) (string, error) {
	for _, name := range env {
		if m := prefixed.FindStringSubmatch(name); m != nil {
			return fmt.Sprintf(
				`MYSQL_PWD="$%[1]sDB_PASSWORD" exec mariadb --socket="$%[1]sDB_SOCKET" --user="$%[1]sDB_USERNAME" "$%[1]sDB_DATABASE"`, m[1],
			), nil
		}
	}
	return "", errors.New("the server doesn't say how the site's programs reach the database")
}
