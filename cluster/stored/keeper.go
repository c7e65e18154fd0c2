package stored

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"slipway/internal/platform/disk"
)

// Directories beside a volume's storage folders.
const (
	nextDir  = ".slipway-next"  // a tree being received
	readyDir = ".slipway-ready" // a received tree that is replacing the content
	lastDir  = ".slipway-last"  // a tree whose place is free
	oldDir   = ".slipway-old"   // the previous content
)

// Serve serves a volume's protocol until the other side ends the connection.
func Serve(dir string, c io.ReadWriter) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	s := newStream(c)
	for {
		p, err := s.next()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch p.Kind {
		case list:
			err = s.list(root)
		case read:
			err = s.files(root)
		case write:
			if err = s.take(root, dir); err != nil {
				remove(root, nextDir)
			}
		default:
			err = errGarbled
		}
		if err != nil {
			full := disk.Full(err)
			rest := make(chan struct{})
			go func() { // it reads the response after sending everything
				defer close(rest)
				_, _ = io.Copy(io.Discard, s.r.in)
			}()
			err = errors.Join(err, s.last(part{Entry: Entry{Kind: failed}, Full: full, Much: errors.Is(err, ErrMuch), Why: err.Error()}))
			<-rest
			return err
		}
		if err := s.last(part{Entry: Entry{Kind: end}}); err != nil {
			return err
		}
	}
}

func (s *stream) list(root *os.Root) error {
	var all amount
	return walk(root, func(e Entry) error {
		if err := all.add(e); err != nil {
			return err
		}
		return s.send(part{Entry: e})
	})
}

// files sends the requested files and skips deleted ones.
func (s *stream) files(root *os.Root) error {
	var names []string
	var all amount
	for {
		p, err := s.next()
		if err != nil {
			return err
		}
		if p.Kind == end {
			break
		}
		if p.Kind != file || !good(p.Name) {
			return errGarbled
		}
		p.Size = 0 // the current size is sent with the content
		if err := all.add(p.Entry); err != nil {
			return err
		}
		names = append(names, p.Name)
	}
	block := make([]byte, maxBlock)
	for _, name := range names {
		if err := s.sendFile(root, name, block); err != nil {
			return err
		}
	}
	return nil
}

// take receives a tree and replaces the stored content once all of it is on disk.
func (s *stream) take(root *os.Root, dir string) error {
	if err := finish(root); err != nil {
		return err
	}
	if err := remove(root, nextDir); err != nil {
		return err
	}
	if err := root.Mkdir(nextDir, 0o700); err != nil {
		return err
	}
	var all amount
	for {
		p, err := s.next()
		if err != nil {
			return err
		}
		if p.Kind == end {
			break
		}
		if err := all.add(p.Entry); err != nil {
			return err
		}
		if !good(p.Name) || p.Kind != folder && !strings.Contains(p.Name, "/") {
			return errGarbled
		}
		if err := s.lay(root, p.Entry); err != nil {
			return err
		}
	}
	if err := syncAll(dir); err != nil {
		return err
	}
	if err := root.Rename(nextDir, readyDir); err != nil {
		return err
	}
	return errors.Join(finish(root), syncAll(dir))
}

func (s *stream) lay(root *os.Root, e Entry) (err error) {
	at := path.Join(nextDir, e.Name)
	switch e.Kind {
	case folder:
		mode := os.FileMode(0o755)
		if info, err := root.Lstat(e.Name); err == nil && info.IsDir() {
			mode = info.Mode().Perm() // a copy's folders have other modes
		}
		if err := root.Mkdir(at, 0o700); err != nil {
			return err
		}
		return root.Chmod(at, mode|0o700)
	case link:
		return root.Symlink(e.Link, at)
	case same:
		err := root.Link(e.Name, at)
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EMLINK) {
			return duplicate(root, e.Name, at) // not every file system has hard links
		}
		return err
	case file:
		_, err := s.receiveFile(root, at, os.FileMode(e.Mode)&0o777)
		return err
	}
	return errGarbled
}

func duplicate(root *os.Root, from, to string) error {
	in, err := open(root, from, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm()|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(info.Mode().Perm()), out.Close())
}

// Finish completes the replacement by a received tree after its keeper was interrupted. It must run before any other
// use of a volume.
func Finish(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return finish(root)
}

// finish replaces the folders' content rather than the folders, which are mounted in running programs. Each step may be
// interrupted; the next call resumes.
func finish(root *os.Root) error {
	if _, err := root.Lstat(readyDir); err == nil {
		if err := root.MkdirAll(oldDir, 0o700); err != nil {
			return err
		}
		if err := each(root, readyDir, func(name string) error {
			if err := root.Mkdir(path.Join(oldDir, name), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			return moveAll(root, name, path.Join(oldDir, name))
		}); err != nil {
			return err
		}
		if err := root.Rename(readyDir, lastDir); err != nil {
			return err
		}
	}
	if _, err := root.Lstat(lastDir); err == nil {
		if err := each(root, lastDir, func(name string) error {
			if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			return moveAll(root, path.Join(lastDir, name), name)
		}); err != nil {
			return err
		}
	}
	return errors.Join(remove(root, lastDir), remove(root, oldDir))
}

// each calls do with the names in a folder, if it exists.
func each(root *os.Root, dir string, do func(name string) error) error {
	list, err := entries(root, dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if err := do(e.Name()); err != nil {
			return err
		}
	}
	return nil
}

func moveAll(root *os.Root, from, to string) error {
	return each(root, from, func(name string) error {
		at := path.Join(from, name)
		err := root.Rename(at, path.Join(to, name))
		if errors.Is(err, os.ErrPermission) { // a folder that its owner may not write to
			err = errors.Join(writable(root, from), writable(root, at), root.Rename(at, path.Join(to, name)))
		}
		return err
	})
}

func writable(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	return root.Chmod(name, info.Mode().Perm()|0o700)
}

// remove deletes a folder regardless of the modes in it.
func remove(root *os.Root, name string) error {
	err := root.RemoveAll(name)
	if !errors.Is(err, os.ErrPermission) {
		return err
	}
	if err := open700(root, name, 0); err != nil {
		return err
	}
	return root.RemoveAll(name)
}

func open700(root *os.Root, name string, depth int) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() || depth > 2*maxDepth {
		return err
	}
	if err := root.Chmod(name, 0o700); err != nil {
		return err
	}
	return each(root, name, func(below string) error { return open700(root, path.Join(name, below), depth+1) })
}

func syncAll(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
