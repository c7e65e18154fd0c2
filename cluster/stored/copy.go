package stored

import (
	"cmp"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Copy is a copy of a site's storage in its own directory, with a subdirectory per storage folder as in the volume.
// Names that begin with a dot are for its users. It is not safe for concurrent use.
type Copy struct {
	dir   string
	known map[string]known // copied files by path
	other bool             // may differ from the volume
}

// known holds a copied file's state in the volume and here.
type known struct{ there, here Entry }

// NewCopy returns an empty copy in a new directory.
func NewCopy(dir string) (*Copy, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	return &Copy{dir: dir, known: map[string]known{}}, os.MkdirAll(dir, 0o700)
}

// Dir returns the copy's directory.
func (c *Copy) Dir() string { return c.dir }

// Fetch updates the copy from the volume, transferring only changes.
func (c *Copy) Fetch(conn io.ReadWriter) (err error) {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if c.other {
		for name := range c.known {
			if top, _, _ := strings.Cut(name, "/"); top == name {
				if err := root.RemoveAll(name); err != nil {
					return err
				}
			}
		}
		c.known, c.other = map[string]known{}, false
	}
	defer func() {
		if err != nil { // incomplete
			c.other = true
		}
	}()
	s := newStream(conn)
	wanted, err := c.compare(root, s)
	if err != nil || len(wanted) == 0 {
		return err
	}
	if err := s.send(part{Entry: Entry{Kind: read}}); err != nil {
		return err
	}
	for _, name := range wanted {
		if err := s.send(part{Entry: Entry{Kind: file, Name: name}}); err != nil {
			return err
		}
	}
	if err := s.last(part{Entry: Entry{Kind: end}}); err != nil {
		return err
	}
	asked := map[string]bool{}
	for _, name := range wanted {
		asked[name] = true
	}
	for {
		p, err := s.next()
		if err != nil {
			return err
		}
		if p.Kind == end {
			return nil
		}
		if p.Kind != file || !asked[p.Name] {
			return errGarbled
		}
		delete(asked, p.Name)
		if err := root.RemoveAll(p.Name); err != nil {
			return err
		}
		info, err := s.receiveFile(root, p.Name, os.FileMode(p.Mode)&0o777|0o400)
		if err != nil {
			return err
		}
		c.known[p.Name] = known{p.Entry, entryOf(p.Name, info)}
	}
}

// compare deletes what the volume no longer has, creates its folders and links, and returns the files to transfer.
func (c *Copy) compare(root *os.Root, s *stream) (wanted []string, err error) {
	if err := s.last(part{Entry: Entry{Kind: list}}); err != nil {
		return nil, err
	}
	there := map[string]Entry{}
	var all amount
	var order []string
	for {
		p, err := s.next()
		if err != nil {
			return nil, err
		}
		if p.Kind == end {
			break
		}
		if _, twice := there[p.Name]; twice || !good(p.Name) {
			return nil, errGarbled
		}
		if err := all.add(p.Entry); err != nil {
			return nil, err
		}
		there[p.Name] = p.Entry
		order = append(order, p.Name)
	}
	var old []string
	for name, k := range c.known {
		if e, ok := there[name]; !ok || e.Kind != k.there.Kind {
			old = append(old, name)
		}
	}
	slices.Sort(old)
	for _, name := range old {
		if err := root.RemoveAll(name); err != nil && !gone(err) {
			return nil, err
		}
		delete(c.known, name)
	}
	for _, name := range order {
		e := there[name]
		k, have := c.known[name]
		switch e.Kind {
		case file:
			if !have || k.there.Fresh || !e.as(k.there) {
				wanted = append(wanted, name)
			}
			continue
		case folder:
			if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
				return nil, err
			}
		case link:
			if have && k.there.Link == e.Link {
				continue
			}
			if err := errors.Join(root.RemoveAll(name), root.Symlink(e.Link, name)); err != nil {
				return nil, err
			}
		default:
			return nil, errGarbled
		}
		c.known[name] = known{there: e}
	}
	return wanted, nil
}

// Give replaces the volume's content by the copy, completely or not at all. It only transfers files changed here.
func (c *Copy) Give(conn io.ReadWriter) error {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	c.other = true // from here on the copy may differ from the volume
	s := newStream(conn)
	// The keeper may respond early with the reason for accepting no more.
	answer := make(chan error, 1)
	go func() {
		p, err := s.next()
		if err == nil && p.Kind != end {
			err = errGarbled
		}
		answer <- err
	}()
	err = s.send(part{Entry: Entry{Kind: write}})
	block := make([]byte, maxBlock)
	if err == nil {
		err = walk(root, func(e Entry) error {
			if len(answer) > 0 {
				return errGarbled
			}
			if k, have := c.known[e.Name]; e.Kind == file && !(have && e.as(k.here)) {
				return s.sendFile(root, e.Name, block)
			} else if e.Kind == file {
				e = Entry{Kind: same, Name: e.Name, Size: e.Size}
			}
			return s.send(part{Entry: e})
		})
	}
	if err == nil {
		err = s.last(part{Entry: Entry{Kind: end}})
	}
	if err != nil { // wait briefly for the keeper's reason
		select {
		case why := <-answer:
			return cmp.Or(why, err)
		case <-time.After(wordsPatience):
			return err
		}
	}
	return <-answer
}

// wordsPatience limits the wait for the keeper's reason.
const wordsPatience = 10 * time.Second

// Folders returns the copy's directories by storage folder name.
func (c *Copy) Folders() (map[string]string, error) {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{}
	for _, e := range list {
		if e.IsDir() && isFolder(e.Name()) {
			dirs[e.Name()] = filepath.Join(c.dir, e.Name())
		}
	}
	return dirs, nil
}
