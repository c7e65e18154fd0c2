// Package upgrade owns replacing the program of an installation by that of another release, and taking it back by itself where
// the new one does not work.
//
// The program that is there drives it: it verifies the new one, copies the database, gives the new one its name, has the service
// restarted and watches. Each step is on the disk before it is done, so that whatever is interrupted can be continued. Taking back
// loses nothing that was acknowledged: the old program goes on with the database as it is, which newer schemas only add to. Where
// it can't, the copy takes the database's place, but only if the new program never was ready.
package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slipway/internal/operator/installation"
	"slipway/internal/platform/db"
)

// Config is what an upgrade needs to know of the installation.
type Config struct {
	Store      installation.Store
	Program    string        // what is replaced: an absolute path without links
	Control    string        // address that answers /readyz
	Edge       string        // address of sites over HTTPS. Optional: without it no site is asked.
	SiteDomain string        // of the sites that are asked
	Service    string        // command that controls the service, with ACTION for stop, start or restart
	Image      string        // file that is there in a container image, where nothing is upgraded
	Start      time.Duration // how long the new program may take until it is ready
	Return     time.Duration // and the old one, when it comes back. Optional: 3 minutes.
	Watch      time.Duration // how long the new one is watched afterwards
	Out        io.Writer     // told what happens, a line a step
}

// Patience is for how long an upgrade can be undone.
const Patience = 7 * 24 * time.Hour

func (c Config) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// Check verifies a release, and that the installation could go to it and back. It changes nothing.
func (c Config) Check(ctx context.Context, from Source) error {
	unlock, err := lock(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := c.prepare(ctx, from, false)
	if err != nil {
		return err
	}
	defer os.Remove(x.staged())
	c.say("%s can be upgraded to %s.", x.From.Version, x.To.Version)
	return nil
}

// Run upgrades to a release. It is an error where the old program serves again, too: what went wrong.
func (c Config) Run(ctx context.Context, from Source) error {
	unlock, err := lock(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	if x, err := Last(c.Store); err == nil && x.Step != Ended {
		return errors.New("an upgrade was interrupted: slipway upgrade --continue ends it")
	}
	x, err := c.prepare(ctx, from, false)
	if err != nil {
		return err
	}
	return c.change(ctx, x)
}

// Package watches the program that a package manager has just put in the place of the old one, which lies beside it and is this
// one, and goes back to it where the new one does not work. Where no service runs there is nothing to watch.
func (c Config) Package(ctx context.Context) error {
	unlock, err := lock(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	if x, err := Last(c.Store); err == nil && x.Step != Ended {
		return errors.New("an upgrade was interrupted: slipway upgrade --continue ends it")
	}
	x := State{Program: c.Program, StartedAt: time.Now()}
	if _, serves := c.Store.Serving(); !serves || same(x.Program, x.previous()) {
		return nil
	}
	if c.readyz(ctx) != nil { // nothing could be compared with it: perhaps the new one mends it
		return c.service(ctx, "restart")
	}
	if x.From, err = ask(ctx, x.previous()); err != nil {
		return err
	}
	if x.To, err = ask(ctx, x.Program); err == nil && x.To.Oldest > x.From.Schema && c.Store.Database != "" {
		err = fmt.Errorf("%s changes the database so that %s can't work with it, and PostgreSQL is not copied here", x.To.Version, x.From.Version)
	}
	if err == nil {
		x.Sites = c.canaries(ctx)
		err = c.snapshot(ctx, &x)
	}
	ctx = context.WithoutCancel(ctx)
	if err == nil {
		err = c.reserve()
	}
	if err == nil {
		x.Step = Swapped
		err = x.save(c.Store)
	}
	if err != nil { // nothing was restarted
		c.release()
		return errors.Join(fmt.Errorf("not upgraded: %w", err), replace(x.previous(), x.Program, true))
	}
	return c.watch(ctx, x)
}

// same reports whether two paths are one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// Undo goes back to the program before the last upgrade.
func (c Config) Undo(ctx context.Context) error {
	unlock, err := lock(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	last, err := Last(c.Store)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("there was no upgrade")
	case err != nil:
		return err
	case last.Step != Ended:
		return errors.New("an upgrade was interrupted: slipway upgrade --continue ends it")
	case last.Outcome != Upgraded:
		return errors.New("the last upgrade did not take place: there is nothing to undo")
	case time.Since(last.EndedAt) > Patience:
		return fmt.Errorf("the last upgrade was on %s, and can be undone for 7 days", last.EndedAt.Format(time.DateOnly))
	}
	x, err := c.prepare(ctx, Source{}, true)
	if err != nil {
		return err
	}
	return c.change(ctx, x)
}

// Continue ends an upgrade that was interrupted. Without one it does nothing.
func (c Config) Continue(ctx context.Context) error {
	unlock, err := lock(c.Store)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := Last(c.Store)
	if errors.Is(err, fs.ErrNotExist) || err == nil && x.Step == Ended {
		return nil
	}
	if err != nil {
		return err
	}
	c.Program = x.Program
	switch x.Step {
	case Prepared:
		if _, err := os.Stat(x.staged()); err == nil { // it did not get its name
			_ = os.Remove(x.staged())
			return c.end(x, Abandoned, errors.New("it was interrupted before anything was changed"))
		}
		x.Step = Swapped
		fallthrough
	case Swapped:
		return c.watch(ctx, x)
	default:
		return c.back(ctx, x, errors.New(x.Why))
	}
}

// prepare lays the new program beside the old one and finds out whether it can take its place.
func (c Config) prepare(ctx context.Context, from Source, undo bool) (x State, err error) {
	x = State{Program: c.Program, StartedAt: time.Now()}
	if !undo { // what a package manager put there was watched, so it can be undone
		if err := c.mayReplace(ctx); err != nil {
			return x, err
		}
	}
	if err := os.Remove(x.staged()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return x, err
	}
	if x.From, err = ask(ctx, x.Program); err != nil {
		return x, err
	}
	if undo {
		if err := os.Link(x.previous(), x.staged()); err != nil {
			return x, fmt.Errorf("the program before is not there any more: %w", err)
		}
	} else {
		from.Keys = trimmed(from.Keys)
		if err := from.fetch(ctx, x.staged()); err != nil {
			_ = os.Remove(x.staged())
			return x, err
		}
	}
	defer func() {
		if err != nil {
			_ = os.Remove(x.staged())
		}
	}()
	if x.To, err = ask(ctx, x.staged()); err != nil {
		return x, err
	}
	if from.Version != "" && x.To.Version != from.Version {
		return x, fmt.Errorf("the release %s has the program of %s", from.Version, x.To.Version)
	}
	if !undo && older(x.To.Version, x.From.Version) {
		return x, fmt.Errorf("%s is older than %s, which is installed; slipway upgrade --undo goes back", x.To.Version, x.From.Version)
	}
	if undo && x.From.Oldest > x.To.Schema {
		return x, fmt.Errorf("%s can't work with the database of %s: restore a backup instead", x.To.Version, x.From.Version)
	}
	if x.To.Oldest > x.From.Schema && c.Store.Database != "" {
		return x, fmt.Errorf("%s changes the database so that %s can't work with it, and PostgreSQL is not copied here: "+
			"upgrade to a release between them first", x.To.Version, x.From.Version)
	}
	if _, serves := c.Store.Serving(); !serves {
		return x, errors.New("the service doesn't run: nothing would show whether the new program works")
	}
	if err := c.readyz(ctx); err != nil {
		return x, fmt.Errorf("the service is not well already: %w", err)
	}
	return x, nil
}

// mayReplace refuses where a package manager or a container image keeps the program.
func (c Config) mayReplace(ctx context.Context) error {
	if _, err := os.Stat(c.Image); err == nil {
		return errors.New("slipway runs from a container image: stop the container and start one of the image slipway:VERSION with the same " +
			"volume")
	}
	if dpkg, err := exec.LookPath("dpkg-query"); err == nil {
		if exec.CommandContext(ctx, dpkg, "--search", c.Program).Run() == nil {
			return errors.New("slipway was installed as a Debian package: upgrade it with apt install ./slipway_VERSION_ARCH.deb")
		}
	}
	return nil
}

// change does what prepare found possible.
func (c Config) change(ctx context.Context, x State) error {
	x.Sites = c.canaries(ctx)
	if err := c.snapshot(ctx, &x); err != nil {
		_ = os.Remove(x.staged())
		return fmt.Errorf("copy the database, before anything is changed: %w", err)
	}
	// Nobody's Ctrl-C may leave it half done from here on.
	ctx = context.WithoutCancel(ctx)
	x.Step = Prepared
	err := c.reserve()
	if err == nil { // first of all: it ends what a power cut interrupts
		err = replace(x.Program, x.previous(), true)
	}
	if err == nil {
		err = x.save(c.Store)
	}
	if err != nil {
		_ = os.Remove(x.staged())
		_ = os.Remove(x.Snapshot)
		c.release()
		return err
	}
	c.say("%s is verified.", x.To.Version)
	if err := replace(x.staged(), x.Program, false); err != nil {
		_ = os.Remove(x.staged())
		return c.end(x, Abandoned, err)
	}
	x.Step = Swapped
	if err := x.save(c.Store); err != nil {
		return c.back(ctx, x, err)
	}
	c.say("%s is in the place of %s; restarting.", x.To.Version, x.From.Version)
	return c.watch(ctx, x)
}

// watch has the new program started and returns when it has proven itself, or has been taken back.
func (c Config) watch(ctx context.Context, x State) error {
	err := c.service(ctx, "restart")
	if err == nil {
		err = c.ready(ctx, x.Program, c.Start, crashes)
	}
	if err == nil && !x.Was {
		x.Was = true
		err = x.save(c.Store)
	}
	if err == nil {
		c.say("It is ready; watching it for %s.", c.Watch)
		err = c.well(ctx, x)
	}
	if err != nil {
		return c.back(ctx, x, err)
	}
	if err := c.end(x, Upgraded, nil); err != nil {
		return err
	}
	c.say("Upgraded to %s. slipway upgrade --undo goes back, for 7 days.", x.To.Version)
	return nil
}

// back gives the old program its name again, and returns why that was necessary.
func (c Config) back(ctx context.Context, x State, why error) error {
	x.Step, x.Why = Returning, why.Error()
	c.release()
	// What can't be noted must not keep the old program from serving.
	noted := x.save(c.Store)
	c.say("%s does not work: %v. Going back to %s.", x.To.Version, why, x.From.Version)
	err := replace(x.previous(), x.Program, true)
	action, sockets := "restart", []string(nil) // which stay open
	if err == nil && (!x.Was || c.silent(ctx)) {
		c.kill(x)
	}
	if err == nil && x.Snapshot != "" && !x.Was && x.To.Oldest > x.From.Schema {
		c.say("%s can't work with the new database: the copy from before takes its place. Nothing was acknowledged meanwhile.", x.From.Version)
		action, sockets = "start", c.sockets(ctx)
		err = c.restore(ctx, x, sockets)
	}
	if err == nil {
		err = c.service(ctx, action, sockets...)
	}
	if err == nil {
		err = c.ready(ctx, x.Program, cmp.Or(c.Return, 3*time.Minute), 0)
	}
	if err != nil {
		return c.end(x, Stuck, fmt.Errorf("%w; and %s does not start either: %w", why, x.From.Version, err))
	}
	return errors.Join(c.end(x, Returned, why), noted)
}

// end notes how an upgrade ended, and returns why, in one sentence.
func (c Config) end(x State, o Outcome, why error) error {
	c.release()
	x.Step, x.Outcome, x.EndedAt = Ended, o, time.Now()
	if why != nil {
		x.Why = why.Error()
	}
	if o != Stuck && x.Snapshot != "" {
		_ = os.Remove(x.Snapshot)
	}
	if err := x.save(c.Store); err != nil {
		return err
	}
	switch o {
	case Upgraded:
		return nil
	case Returned:
		return fmt.Errorf("%s did not work and %s serves again: %w", x.To.Version, x.From.Version, why)
	case Stuck:
		return fmt.Errorf("neither program serves: %w; the database from before is %s", why, x.Snapshot)
	}
	return fmt.Errorf("not upgraded: %w", why)
}

// silent reports whether a program that was ready once answers nothing any more.
func (c Config) silent(ctx context.Context) bool {
	if _, serves := c.Store.Serving(); !serves {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // it was waited for longer before
	defer cancel()
	_, err := status(ctx, client(local(c.Control)), "http://slipway/readyz")
	return err != nil
}

// kill ends a program that never was ready, or hangs: nobody gets an answer of it, and it may not heed a stop, for which the
// service manager would wait a minute.
func (c Config) kill(x State) {
	pid, serves := c.Store.Serving()
	if !serves || runs(pid, x.Program) == nil {
		return // none, or the old one already
	}
	if p, err := os.FindProcess(pid); err == nil { // by a descriptor, which is of that process for ever
		defer p.Release()
		if now, serves := c.Store.Serving(); serves && now == pid {
			_ = p.Kill()
		}
	}
}

// reserved is room that is kept free for going back, in bytes: the new program may fill the disk, and the old one writes too.
const reserved = 32 << 20

func (c Config) reserveFile() string { return filepath.Join(folder(c.Store), "reserve") }

// reserve takes the room for going back.
func (c Config) reserve() error {
	f, err := os.OpenFile(c.reserveFile(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, reserved)
	if errors.Is(err, syscall.EOPNOTSUPP) { // there the room is not kept
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("keep %d MiB of the disk free for going back: %w", reserved>>20, err)
	}
	return nil
}

func (c Config) release() { _ = os.Remove(c.reserveFile()) }

// service has the service manager do something, with further units besides.
func (c Config) service(ctx context.Context, action string, units ...string) error {
	_, err := c.control(ctx, action, units...)
	return err
}

func (c Config) control(ctx context.Context, action string, units ...string) (out []byte, err error) {
	words := strings.Fields(strings.ReplaceAll(c.Service, "ACTION", action))
	if len(words) == 0 {
		return nil, errors.New("no command controls the service")
	}
	words = append(words, units...)
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.WaitDelay = time.Second
	if out, err = cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %.300s", strings.Join(words, " "), err, out)
	}
	return out, nil
}

// snapshot copies the database, where it lies here, if there is room for it.
func (c Config) snapshot(ctx context.Context, x *State) error {
	if c.Store.Database != "" {
		return nil
	}
	info, err := os.Stat(c.Store.Path("slipway.db"))
	if err != nil {
		return err
	}
	const spare = 100 << 20
	if _, free, err := installation.DiskSpace(folder(c.Store)); err != nil || free < info.Size()+spare {
		return errors.Join(err, fmt.Errorf("the disk has %d MiB left, and %d are needed", free>>20, (info.Size()+spare)>>20))
	}
	x.Snapshot = filepath.Join(folder(c.Store), "slipway.db")
	if err := os.Remove(x.Snapshot); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir, err := filepath.Abs(c.Store.DataDir)
	if err != nil {
		return err
	}
	d, err := db.Open(ctx, db.Config{URL: "sqlite:" + filepath.Join(dir, "slipway.db")})
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.CopyTo(ctx, x.Snapshot)
	return err
}

// restore stops the service and puts the copy in the database's place. The sockets are closed with it: at the next connection to one
// that is open, systemd would start the service.
func (c Config) restore(ctx context.Context, x State, sockets []string) error {
	if _, err := os.Stat(x.Snapshot); errors.Is(err, fs.ErrNotExist) {
		return nil // it has been done, before something else was interrupted
	}
	if err := c.service(ctx, "stop", sockets...); err != nil {
		return err
	}
	for {
		if _, serves := c.Store.Serving(); !serves {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	// What the new program made of the database is kept, for whoever looks into it.
	aside := filepath.Join(folder(c.Store), "failed-"+x.StartedAt.UTC().Format("20060102-150405"))
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, end := range []string{"-shm", "-wal"} {
		name := "slipway.db" + end
		if err := os.Rename(c.Store.Path(name), filepath.Join(aside, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	// By a second name, so that the first one always is that of a database: without one, the service would begin with an empty one.
	err := os.Link(c.Store.Path("slipway.db"), filepath.Join(aside, "slipway.db"))
	if err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(x.Snapshot, c.Store.Path("slipway.db"))
}
