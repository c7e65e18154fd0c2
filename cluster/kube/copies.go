package kube

import (
	"bufio"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"slipway/cluster/pod"
	"slipway/internal/platform/id"
	"slipway/internal/program/runtime"
)

// Limits of this process's copies of files in programs' storage, in bytes.
const (
	maxCopies      = 4 << 30   // of all
	maxOwnerCopies = 1 << 30   // of an owner's programs
	maxCopy        = 256 << 20 // per file; larger ones aren't served
	leastCopy      = 64 << 10  // minimum size that a file counts as
)

const (
	// freshCopy is how long a copy is served without asking its pod for changes.
	freshCopy = time.Second
	// fetchTime limits the transfer of a file.
	fetchTime = 5 * time.Minute
)

// copies caches requested files of programs' storage, since the edge serves open files, which can't be sent over a
// network.
type copies struct {
	dir string // used exclusively
	// share: total one of each file that is asked for; owner those of its programs; edge others who ask for it wait for its answer
	asking singleflight.Group

	mu    sync.Mutex // guards the fields below
	bytes int64
	// share: total maxCopies bytes; owner maxOwnerCopies bytes; edge the copies that were asked for the longest ago go
	by map[copyKey]*list.Element // of *copied
	// share: total those of by; owner those of by; edge as by
	order *list.List // the last used first
	// share: total those who have copies; owner itself; edge gone with the last copy
	owners map[id.Owner]int64 // bytes
}

type copyKey struct {
	program string
	at      runtime.Stored
}

type copied struct {
	key   copyKey
	owner id.Owner
	file  string
	is    pod.File
	asked time.Time
}

func (c *copied) bytes() int64 { return max(c.is.Size, leastCopy) }

func newCopies(dir string) (*copies, error) {
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "slipway-copies-"); err != nil {
			return nil, fmt.Errorf("make room for copies of programs' files: %w", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("clear copies of programs' files: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make room for copies of programs' files: %w", err)
	}
	return &copies{dir: dir, by: map[copyKey]*list.Element{}, order: list.New(), owners: map[id.Owner]int64{}}, nil
}

var errNoCopy = errors.New("too many large files of this account's storage are being read at once")

// open returns a copy of a file in a program's storage that is at most freshCopy old.
func (s *copies) open(x *program, at runtime.Stored) (*os.File, error) {
	key := copyKey{x.name, at}
	for range 3 { // others may need its space at the same time
		f, is := s.cached(key)
		if f != nil {
			return f, nil
		}
		_, err, _ := s.asking.Do(x.name+"\x00"+at.Folder+"\x00"+at.Path, func() (any, error) { return nil, s.refresh(x, key, is) })
		if err != nil {
			return nil, err
		}
	}
	return nil, errNoCopy
}

// cached returns a fresh copy, or else the version of the stale copy.
func (s *copies) cached(key copyKey) (*os.File, pod.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.by[key]
	if e == nil {
		return nil, pod.File{}
	}
	s.order.MoveToFront(e)
	c := e.Value.(*copied)
	if time.Since(c.asked) >= freshCopy {
		return nil, c.is
	}
	f, err := os.Open(c.file)
	if err != nil {
		s.remove(e)
		return nil, pod.File{}
	}
	return f, c.is
}

// refresh downloads a file from the pod unless its version is still have.
func (s *copies) refresh(x *program, key copyKey, have pod.File) error {
	c, reply, err := x.askFor(context.Background(), pod.Wanted{Folder: key.at.Folder, Path: key.at.Path, Have: have})
	if err != nil {
		return err
	}
	defer c.Close()
	if reply != pod.Yes {
		s.drop(key)
		return &fs.PathError{Op: "open", Path: key.at.Path, Err: fs.ErrNotExist}
	}
	_ = c.SetDeadline(time.Now().Add(fetchTime))
	r := bufio.NewReader(c)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return err
	}
	var is pod.File
	if err := json.Unmarshal(line, &is); err != nil {
		return err
	}
	if is == have && s.same(key, is) {
		return nil
	}
	s.drop(key)
	if is.Size < 0 || is.Size > maxCopy {
		if x.output != nil {
			x.output("stderr", fmt.Sprintf("%s is too large to be served on Kubernetes: %d MiB, at most %d MiB",
				path.Join(key.at.Folder, key.at.Path), is.Size>>20, maxCopy>>20))
		}
		return errNoCopy
	}
	made := &copied{key: key, owner: x.spec.Owner, is: is, asked: time.Now()}
	if !s.reserve(made) {
		return errNoCopy
	}
	if made.file, err = s.write(is, r); err != nil {
		s.release(made)
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[key] != nil || !x.runs() {
		s.count(made, -1)
		return os.Remove(made.file)
	}
	s.by[key] = s.order.PushFront(made)
	return nil
}

// same marks a copy as still current, if it exists.
func (s *copies) same(key copyKey, is pod.File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.by[key]
	if e == nil || e.Value.(*copied).is != is {
		return false
	}
	e.Value.(*copied).asked = time.Now()
	return true
}

// write stores a file's content with its modification time.
func (s *copies) write(is pod.File, from io.Reader) (name string, err error) {
	f, err := os.CreateTemp(s.dir, "")
	if err != nil {
		return "", err
	}
	_, err = io.CopyN(f, from, is.Size)
	err = errors.Join(err, f.Close())
	if err == nil {
		changed := time.Unix(0, is.Changed)
		err = os.Chtimes(f.Name(), changed, changed)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return f.Name(), err
}

// reserve makes room for a copy by evicting others, except those being downloaded.
func (s *copies) reserve(c *copied) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tight := func() bool {
		return s.bytes+c.bytes() > maxCopies || s.owners[c.owner]+c.bytes() > maxOwnerCopies
	}
	for at := s.order.Back(); at != nil && tight(); {
		victim := at
		at = at.Prev()
		if s.bytes+c.bytes() > maxCopies || victim.Value.(*copied).owner == c.owner {
			s.remove(victim)
		}
	}
	if tight() {
		return false
	}
	s.count(c, 1)
	return true
}

func (s *copies) release(c *copied) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(c, -1)
}

// count adds a copy's size times times to the totals. The caller holds s.mu.
func (s *copies) count(c *copied, times int64) {
	s.bytes += times * c.bytes()
	s.owners[c.owner] += times * c.bytes()
	if s.owners[c.owner] == 0 {
		delete(s.owners, c.owner)
	}
}

// remove deletes a copy, which open files survive. The caller holds s.mu.
func (s *copies) remove(e *list.Element) {
	c := e.Value.(*copied)
	s.order.Remove(e)
	delete(s.by, c.key)
	s.count(c, -1)
	_ = os.Remove(c.file)
}

func (s *copies) drop(key copyKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.by[key]; e != nil {
		s.remove(e)
	}
}

// forget deletes the copies of an ended program's files.
func (s *copies) forget(program string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.by {
		if key.program == program {
			s.remove(e)
		}
	}
}
