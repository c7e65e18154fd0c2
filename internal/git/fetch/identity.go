package fetch

import (
	"fmt"
	"os"

	"slipway/internal/platform/sandbox"
)

// identity is the uid under which all git processes of one site run while at least one of them does. Two sites never
// have the same uid at the same time, so that no git process can read another tenant's repository or credential.
type identity struct {
	uid     int
	users   int
	release func()
}

// identity assigns a uid to a command and gives it ownership of the repository. 0 means our own uid.
func (s *Fetcher) identity(c command) (uid int, release func(), err error) {
	if c.ours {
		if c.gen != nil {
			s.ids.Lock()
			c.gen.uid = 0 // new files belong to us; ownership changes before the next use
			s.ids.Unlock()
		}
		return 0, func() {}, nil
	}
	if c.site == "" {
		return s.helpers.Identity()
	}
	s.ids.Lock()
	defer s.ids.Unlock()
	id := s.identities[c.site]
	if id == nil {
		id = &identity{}
		if id.uid, id.release, err = s.helpers.Identity(); err != nil {
			return 0, nil, err
		}
		s.identities[c.site] = id
	}
	id.users++
	release = func() {
		s.ids.Lock()
		defer s.ids.Unlock()
		id.users--
		if id.users == 0 {
			delete(s.identities, c.site)
			id.release()
		}
	}
	if id.uid == 0 || c.gen == nil || c.gen.uid == id.uid {
		return id.uid, release, nil
	}
	if err := sandbox.Own(c.gen.git(), id.uid); err != nil {
		s.ids.Unlock()
		release()
		s.ids.Lock()
		return 0, nil, fmt.Errorf("give cache to git: %w", err)
	}
	c.gen.uid = id.uid
	return id.uid, release, nil
}

// readable reports whether everyone may read a repository of the operator's. Then git doesn't need our uid.
func readable(dir string) bool {
	for name, want := range map[string]os.FileMode{"": 0o005, "HEAD": 0o004, "objects": 0o005, "refs": 0o005} {
		if info, err := os.Stat(dir + "/" + name); err != nil || info.Mode().Perm()&want != want {
			return false
		}
	}
	_, err := os.Lstat(dir + "/objects/info/alternates") // points outside the directories that git may read
	return os.IsNotExist(err)
}
