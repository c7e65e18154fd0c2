// Package doctor owns the examination of a host: what of the abilities that an installation
// needs is there, and what is missing.
//
// It repairs nothing, and may run beside a process that serves.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"slipway/internal/backup/backup"
	"slipway/internal/build/phpversion"
	"slipway/internal/build/root"
	"slipway/internal/operator/config"
	"slipway/internal/operator/installation"
	"slipway/internal/operator/upgrade"
	"slipway/internal/platform/db"
	"slipway/internal/platform/disk"
	"slipway/internal/platform/job"
	"slipway/internal/platform/node"
	"slipway/internal/platform/sandbox"
	"slipway/internal/platform/text"
	"slipway/internal/program/database"
	"slipway/internal/program/redis"
	"slipway/internal/program/volume"
)

// Check is one line of what doctor finds.
type Check struct {
	Name     string
	OK       bool
	Required bool // nothing works without it; otherwise something is missing that the text names
	Text     string
}

// Print prints what of the host's abilities is there and what is missing, and ends with
// an error when something required is.
func Print(ctx context.Context, s installation.Store, m config.SMTP, c Certificates, out io.Writer) error {
	return show(Examine(ctx, s, m, c), out)
}

func show(checks []Check, out io.Writer) error {
	width, bad := 0, 0
	for _, c := range checks {
		width = max(width, len(c.Name))
	}
	color := isTerminal(out)
	for _, c := range checks {
		mark, paint := "ok     ", "32"
		switch {
		case !c.OK && c.Required:
			mark, paint = "missing", "31"
			bad++
		case !c.OK:
			mark, paint = "limited", "33"
		}
		if color {
			mark = "\x1b[" + paint + "m" + mark + "\x1b[0m"
		}
		fmt.Fprintf(out, "%s  %-*s  %s\n", mark, width, c.Name, c.Text)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d requirements are not met", bad, len(checks))
	}
	return nil
}

// Examine checks everything once.
func Examine(ctx context.Context, s installation.Store, m config.SMTP, certificates Certificates) []Check {
	var checks []Check
	missing := s.Find()
	switch {
	case errors.Is(missing, fs.ErrPermission):
		checks = []Check{{"data directory", false, true, missing.Error() + ": run it as root"}}
	case missing != nil:
		checks = []Check{{Name: "data directory", Text: missing.Error()}}
	default:
		checks = []Check{
			lastUpgrade(s),
			autoUpgrades(s),
			dataDir(s),
			ownDatabase(ctx, s),
			files(ctx, s),
			storage(ctx, s),
			jobs(ctx, s),
			nodes(ctx, s),
			backups(ctx, s),
		}
	}
	checks = append(
		checks,
		gitTool(ctx),
		loopback(),
		mailServer(ctx, m),
		databaseServer(ctx, s),
		objectCaches(s),
		redisServer(ctx, s),
		phpTools(ctx),
		runtimes(s),
	)
	dir := scratch(s)
	if missing != nil { // a check makes no installation
		if made, err := os.MkdirTemp("", "slipway-doctor-"); err == nil {
			defer os.RemoveAll(made)
			dir = made
		}
	}
	for _, c := range sandbox.Probe(ctx, sandbox.Config{Dir: dir, Log: slog.New(slog.DiscardHandler)}, installation.ProbeUID) {
		if _, err := os.Stat(installation.ImageFile); err == nil && !c.OK && c.Required {
			c.Detail += " Start the container with the options of docs/packages.md, section Container image."
		}
		// Without a sandbox sites that need no build still work.
		checks = append(checks, Check{"builds: " + c.Name, c.OK || !c.Required, false, c.Detail})
	}
	return append(checks, certificates.check())
}

// lastUpgrade tells how the last upgrade ended. What was taken back is for the operator to look into; nothing is missing then.
func lastUpgrade(s installation.Store) Check {
	x, err := upgrade.Last(s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Check{Name: "upgrade", OK: true, Text: "none yet"}
	case err != nil:
		return Check{Name: "upgrade", Text: err.Error()}
	case x.Step != upgrade.Ended:
		return Check{Name: "upgrade", Text: "that to " + x.To.Version + " was interrupted: slipway upgrade --continue ends it"}
	}
	return Check{Name: "upgrade", OK: x.Outcome == upgrade.Upgraded, Text: x.Ending()}
}

// autoUpgrades tells what slipway-auto-upgrade.timer came to the last time.
func autoUpgrades(s installation.Store) Check {
	c := Check{Name: "automatic upgrades", OK: true, Text: "off"}
	text, at, err := upgrade.LastAuto(s)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		c.OK, c.Text = false, err.Error()
	case time.Since(at) > 48*time.Hour:
		c.Text = "off since " + at.Format("2 January 2006")
	default:
		c.OK = text == upgrade.NothingNewer || strings.HasPrefix(text, upgrade.UpgradedTo)
		c.Text = at.Format("2 January 2006, 15:04") + ": " + text
	}
	return c
}

func scratch(s installation.Store) string {
	dir, err := filepath.Abs(s.Path("builds", "doctor"))
	if err != nil {
		return s.Path("builds", "doctor")
	}
	return dir
}

func dataDir(s installation.Store) Check {
	c := Check{Name: "data directory", Required: true}
	f, err := os.CreateTemp(s.DataDir, ".doctor-*")
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer os.Remove(f.Name())
	_, err = f.Write(make([]byte, 64<<10)) // a file without content needs no room
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		c.Text = err.Error()
		return c
	}
	_, free, err := installation.DiskSpace(s.DataDir)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	c.OK, c.Text = true, fmt.Sprintf("%s can be written; %d MiB are free", s.DataDir, free>>20)
	if free < 1<<30 {
		c.OK, c.Required = false, false
		c.Text += ", which is little"
	}
	if disk.Spare(s.DataDir, 0) != nil {
		c.Text += ": uploads, deployments and builds are refused until there is room"
	}
	return c
}

func ownDatabase(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "database", Required: true}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	if err := d.Integrity(ctx); err != nil {
		c.Text = err.Error()
		return c
	}
	kind := "PostgreSQL"
	if d.Single() {
		kind = "SQLite"
	}
	c.OK, c.Text = true, kind+" responds and passes its integrity check"
	return c
}

// files reports whether the store of files can be used.
func files(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "files", Required: true}
	if err := s.CheckBlobs(); err != nil {
		c.Text = "--blobs: " + err.Error()
		return c
	}
	d, err := s.OpenDatabase(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	if !s.Remote() {
		c.OK, c.Text = true, "stored in "+s.BlobDir()
		if remote, err := node.RemoteFiles(ctx, d); s.Blobs == "" && err == nil && remote != "" {
			c.OK, c.Required, c.Text = false, false, "stored in "+remote+": name it with --blobs to have it checked"
		} else if _, err := s.Files(ctx, d, nil); err != nil {
			c.OK, c.Text = false, err.Error()
		}
		return c
	}
	elsewhere := s // the cache belongs to the process that serves
	dir, err := os.MkdirTemp("", "slipway-doctor-")
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer os.RemoveAll(dir)
	elsewhere.DataDir = dir
	store, err := elsewhere.OpenBlobs(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := store.Probe(ctx); err != nil {
		c.Text = err.Error()
		return c
	}
	if _, err := s.Files(ctx, d, store); err != nil {
		c.Text = err.Error()
		return c
	}
	c.OK, c.Text = true, s.Shared()+" answers"
	return c
}

// storage reports whether the storage of sites is the one that the installation has, where all nodes mount it.
func storage(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "storage of sites"}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	mark, err := node.SharedMark(ctx, d)
	switch {
	case err != nil:
		c.Text = err.Error()
	case mark == "" && s.Storage == "":
		c.OK, c.Text = true, "in the data directory of each node"
	case mark == "":
		c.OK, c.Text = true, s.Storage+" becomes the storage of all nodes when slipway serve starts with --storage"
	case s.Storage == "":
		c.Text = "all nodes mount it: name the directory with --storage to have it checked"
	default:
		c.Text = volume.New(volume.Config{Dir: s.Storage, Mark: mark}).Within(ctx, 5*time.Second)
		if c.OK = c.Text == ""; c.OK {
			c.Text = s.Storage + " is mounted and answers"
		}
	}
	return c
}

// jobs reports kinds of jobs that wait although they are due, because no running node has
// a handler for them: an upgrade that stopped half-way, or one that was taken back.
func jobs(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "jobs"}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	list, err := job.Unknown(ctx, d)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	if len(list) == 0 {
		c.OK, c.Text = true, "every due job has a running node that knows its kind"
		return c
	}
	var kinds []string
	for _, w := range list {
		kinds = append(kinds, fmt.Sprintf("%d of kind %s since %s", w.Jobs, w.Kind, w.Since))
	}
	c.Text = "jobs wait for a node of another version: " + strings.Join(kinds, ", ")
	return c
}

// nodes reports which processes serve this installation, and what of them somebody should look into.
func nodes(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "nodes"}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	list, err := NodesOf(ctx, s, d)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	var up []string
	for _, n := range list {
		if n.State != node.Down {
			up = append(up, fmt.Sprintf("%s (%s, %s, %s)", n.Name, cmp.Or(n.Version, "?"), strings.Join(n.Roles, "+"), n.State))
		}
	}
	c.Text = cmp.Or(strings.Join(up, ", "), "none runs")
	if d.Single() { // a service that is off is no fault of the machine
		c.OK = true
		return c
	}
	problems := node.Problems(list)
	c.OK = len(problems) == 0
	c.Text = strings.Join(append([]string{c.Text}, problems...), "; ")
	return c
}

// NodesOf returns the nodes of an installation. On SQLite, where no lease ends, it looks whether the one there is runs.
func NodesOf(ctx context.Context, s installation.Store, d *db.DB) ([]node.Node, error) {
	list, err := node.List(ctx, d)
	if _, serving := s.Serving(); d.Single() && !serving {
		for i := range list {
			list[i].State = node.Down
		}
	}
	return list, err
}

// backups reports how the backups of the whole installation go.
func backups(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "backups"}
	d, _, err := s.Open(ctx, nil)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	defer d.Close()
	x, err := backup.StandingOf(ctx, d)
	if err != nil {
		c.Text = err.Error()
		return c
	}
	problems := x.Problems(d.Now())
	switch {
	case len(problems) > 0:
		c.Text = strings.Join(problems, ". ")
		return c
	case x.Every == 0 && x.Succeeded == 0:
		c.Text = "the installation is not backed up: --backup-to and --backup-every of slipway serve"
	case x.Succeeded == 0:
		c.Text = "the first backup of the installation is due"
	default:
		c.Text = "the newest backup of the installation is of " + x.Succeeded.String()
	}
	c.OK = true
	return c
}

func gitTool(ctx context.Context) Check {
	c := Check{Name: "git"}
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		c.Text = "git is not installed: sites from repositories can't be deployed; apt-get install git"
		return c
	}
	c.OK, c.Text = true, strings.TrimSpace(string(out))
	return c
}

func loopback() Check {
	c := Check{Name: "loopback", Required: true}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Text = "no port can be opened on 127.0.0.1: " + err.Error()
		return c
	}
	l.Close()
	c.OK, c.Text = true, "ports can be opened on 127.0.0.1"
	return c
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// mailServer asks the server whether it would take mails.
func mailServer(ctx context.Context, m config.SMTP) Check {
	c := Check{Name: "mail"}
	mailer, err := m.Mailer("")
	if err == nil && mailer == nil {
		c.OK, c.Text = true, "not configured (--smtp): the operator creates the links for new passwords"
		return c
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		c.Text, err = mailer.Check(ctx)
	}
	if c.OK = err == nil; !c.OK {
		c.Text = err.Error()
	}
	return c
}

// objectCaches reports whether WordPress sites can have object caches, which none needs.
func objectCaches(s installation.Store) Check {
	if s.Redis != "" {
		return Check{Name: "object caches", OK: true, Text: "on the Redis server (--redis)"}
	}
	c := Check{Name: "object caches", OK: true, Text: "none for WordPress sites: Redis is not installed (apt-get install redis-server)"}
	if program, err := exec.LookPath("redis-server"); err == nil {
		c.Text = program + ": WordPress sites can have one"
	}
	return c
}

// redisServer asks the operator's Redis server whether it can keep sites apart.
func redisServer(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "Redis", OK: true, Text: "not configured (--redis): Node.js and PHP programs have none"}
	if s.Redis == "" {
		return c
	}
	server, err := redis.ParseServer(s.Redis)
	if err == nil {
		err = server.Check(ctx)
	}
	c.Text = "the server answers and keeps sites apart"
	if err != nil {
		c.OK, c.Text = false, err.Error()
	} else if weak := server.Guessable(); weak != "" {
		c.OK, c.Text = false, weak
	}
	return c
}

// databaseServer reports whether sites can have databases.
func databaseServer(ctx context.Context, s installation.Store) Check {
	c := Check{Name: "databases"}
	c.Text = database.Missing()
	if c.Text == "" {
		c.OK, c.Text = true, database.Version(ctx)+": sites can have databases"
	}
	return c
}

// runtimes reports which tools Slipway has installed itself, or why it can't.
func runtimes(s installation.Store) Check {
	c := Check{Name: "runtimes"}
	all, err := root.Look(s.Path("builds", "roots"))
	if err != nil {
		c.Text = err.Error()
		return c
	}
	var size int64
	var list []string
	for _, x := range all {
		size += x.Size
		list = append(list, fmt.Sprintf("%s of %s", x.Title, x.Made.Format(time.DateOnly)))
		if x.Until < time.Now().Format(time.DateOnly) {
			list[len(list)-1] += " (without security updates since " + x.Until + ")"
		}
	}
	c.OK, c.Text = true, "none is installed; sites get "+root.Names()+" when they need them"
	if len(list) > 0 {
		c.Text = fmt.Sprintf("%s, %s in all", strings.Join(list, ", "), text.Size(size))
	}
	if why := root.Why(); why != "" {
		c.OK, c.Text = false, why
	}
	return c
}

// phpTools reports which versions of PHP answer for sites here.
func phpTools(ctx context.Context) Check {
	c := Check{Name: "PHP"}
	versions := phpversion.Installed(ctx)
	if len(versions) == 0 {
		c.Text = "not installed: PHP sites are refused (apt-get install php-fpm php-cli composer)"
		if root.Why() == "" {
			c.OK, c.Text = true, "not installed: PHP sites get Slipway's own (slipway runtimes list)"
		}
		return c
	}
	var list []string
	cli := false
	for _, v := range versions {
		list = append(list, v.Number)
		cli = cli || v.CLI != ""
	}
	c.OK, c.Text = true, strings.Join(list, ", ")
	switch {
	case !cli:
		c.OK, c.Text = false, c.Text+", without the command line program: Composer projects are refused (apt-get install php-cli)"
	case !versions[0].HasComposer():
		c.OK, c.Text = false, c.Text+", without Composer: Composer projects are refused (apt-get install composer)"
	}
	return c
}
