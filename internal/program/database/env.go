package database

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway/internal/platform/id"
)

// Where a site's programs find the server inside their sandbox: the socket, and the same
// as a port for drivers that know no sockets.
const (
	Socket = "/run/mysqld/mysqld.sock"
	Port   = 33306
)

// parts are the variables of a database beside its address.
var parts = []string{"DB_CONNECTION", "DB_HOST", "DB_PORT", "DB_DATABASE", "DB_USERNAME", "DB_PASSWORD", "DB_SOCKET"}

// EnvKeys returns the names of the variables by which a site's programs reach the database.
func (x Database) EnvKeys() []string {
	keys := []string{x.prefix() + "DATABASE_URL"}
	for _, p := range parts {
		keys = append(keys, x.prefix()+p)
	}
	return keys
}

func (x Database) prefix() string {
	if x.place == 0 {
		return ""
	}
	return strings.ToUpper(x.Name) + "_"
}

// Missing returns why a site can't start on this node: a database of its own, of production or of a preview, that is on another
// node, or on a server that this one doesn't know.
func (d *Databases) Missing(ctx context.Context, site id.Site) error {
	list, err := d.ofSite(ctx, d.c.DB, site)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.server != "" && !d.here(x.server) {
			return d.elsewhere(x.server)
		}
	}
	return nil
}

// Env returns the variables of a site's databases, and the secrets among their values. It
// is for what runs the site's own programs alone. It waits a moment for those that are being made or get another password.
func (d *Databases) Env(ctx context.Context, site id.Site) (env map[string]string, secrets []string, err error) {
	until := time.Now().Add(createdWithin)
	if end, ok := ctx.Deadline(); ok {
		until = earlier(until, time.Now().Add(time.Until(end)/2)) // the caller needs the rest
	}
	for {
		list, err := d.ofSite(ctx, d.c.DB, site)
		if err != nil {
			return nil, nil, err
		}
		waits := slices.ContainsFunc(list, func(x Database) bool { return x.Status == Creating })
		if !waits || time.Now().After(until) {
			return d.envOf(list)
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// A program that starts right after its database was asked for, or got another password, waits so long for the server to know
// that password, and looks so often. Without that, the server would refuse it.
const (
	createdWithin = 20 * time.Second
	lookEvery     = 100 * time.Millisecond
)

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (d *Databases) envOf(list []Database) (env map[string]string, secrets []string, err error) {
	env = map[string]string{}
	for _, x := range list {
		if x.server == "" || !d.here(x.server) {
			continue
		}
		password, err := d.password(x)
		if err != nil {
			return nil, nil, err
		}
		setEnv(env, x.prefix(), Access{x.Schema, x.Schema, password})
		secrets = append(secrets, password)
	}
	return env, secrets, nil
}

// EnvOf returns the variables of a database of that name and place in its site's list, which
// is reached by other means than the site's own.
func EnvOf(name string, place int64, a Access) map[string]string {
	env := map[string]string{}
	setEnv(env, Database{Name: name, place: place}.prefix(), a)
	return env
}

func setEnv(env map[string]string, prefix string, a Access) {
	port := strconv.Itoa(Port)
	u := url.URL{Scheme: "mysql", User: url.UserPassword(a.User, a.Password), Host: "127.0.0.1:" + port, Path: "/" + a.Schema}
	env[prefix+"DATABASE_URL"] = u.String()
	for i, v := range []string{"mysql", "127.0.0.1", port, a.Schema, a.User, a.Password, Socket} {
		env[prefix+parts[i]] = v
	}
}

// Access is how the database's own site connects to it. It holds a secret.
type Access struct{ Schema, User, Password string }

// Access returns how to connect to a database through its site's socket.
func (d *Databases) Access(ctx context.Context, id ID) (Access, error) {
	x, err := d.byID(ctx, d.c.DB, id)
	if err != nil {
		return Access{}, err
	}
	password, err := d.password(x)
	return Access{x.Schema, x.Schema, password}, err
}
