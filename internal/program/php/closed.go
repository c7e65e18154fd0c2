package php

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"
	"time"

	"slipway/internal/build/htaccess"
)

// Obeyed says which files of Apache a Site obeys.
type Obeyed struct {
	Below string // a folder, relative to the root
	Known Folders
}

// Folders are those that are known to be closed without such a file.
type Folders interface {
	// Rules returns what a folder closes; nil: nothing.
	Rules(folder string) *htaccess.Rules
}

const (
	obeyedFor = time.Second // without being read again
	maxObeyed = 100         // folders whose rules are kept
)

// obeyed holds rules that were read. Its zero value has none.
type obeyed struct {
	mu sync.Mutex // guards known
	// share: total 100 folders of each program whose .htaccess was read; owner its programs; edge all are forgotten, and read again
	known map[string]readRules
}

type readRules struct {
	rules *htaccess.Rules // nil: there are none
	until time.Time
}

// hides reports whether a file is closed by a .htaccess in its folder, or in one above.
func (s *Site) hides(name string) bool {
	if s.Rules.Hides(name) {
		return true
	}
	if s.Obeys == nil || !strings.HasPrefix(name, s.Obeys.Below+"/") {
		return false
	}
	return htaccess.Hides(s.Obeys.Below, name, s.rules)
}

// rules returns those of a folder. One whose file can't be read is closed.
func (s *Site) rules(folder string) *htaccess.Rules {
	o, now := &s.obeyed, time.Now()
	o.mu.Lock()
	got, ok := o.known[folder]
	o.mu.Unlock()
	if ok && now.Before(got.until) {
		return got.rules
	}
	rules, err := s.readRules(folder)
	if errors.Is(err, fs.ErrNotExist) {
		rules = s.Obeys.Known.Rules(folder)
	} else if err != nil {
		return htaccess.Closed()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) >= maxObeyed || o.known == nil {
		o.known = map[string]readRules{}
	}
	o.known[folder] = readRules{rules, now.Add(obeyedFor)}
	return rules
}

func (s *Site) readRules(folder string) (*htaccess.Rules, error) {
	f, _, err := s.Open(path.Join(s.Root, folder, ".htaccess"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return htaccess.Closed(), err
	}
	text, err := io.ReadAll(io.LimitReader(f, htaccess.Max+1))
	if err != nil {
		return nil, err
	}
	return htaccess.Parse(string(text)), nil
}
