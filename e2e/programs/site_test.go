package programs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
)

// appSite is an installation's site, with methods for its program.
type appSite struct{ *installation }

// result waits until a deployment has succeeded and returns its log.
func (s appSite) result(id string) string {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("its log:\n%s", s.log(id))
		}
	}()
	s.ended(id)
	return s.log(id)
}

func (s appSite) log(id string) string {
	var l struct{ Logs []struct{ Message string } }
	if err := s.Call(context.Background(), s.key, "GET", "/deployments/"+id+"/logs?limit=1000", nil, &l); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, line := range l.Logs {
		b.WriteString(line.Message + "\n")
	}
	return b.String()
}

// runtimeLog returns what a process of the site has printed.
func (s appSite) runtimeLog(process string) string {
	s.t.Helper()
	var l struct{ Logs []struct{ Message string } }
	s.call("GET", "/sites/"+s.ID+"/logs?limit=1000&process="+process, nil, &l)
	var b strings.Builder
	for _, line := range l.Logs {
		b.WriteString(line.Message + "\n")
	}
	return b.String()
}

func (s appSite) operation(id string) (o struct {
	Status, Error string
	Result        struct {
		ExitCode int
		Output   string
	}
},
) {
	s.t.Helper()
	s.until("operation "+id, func() (bool, error) {
		err := s.Call(s.t.Context(), s.key, "GET", "/operations/"+id, nil, &o)
		return o.Status == "success" || o.Status == "failed", err
	})
	return o
}

// running counts the Node.js processes whose command line contains a text.
func running(text string) int { return len(pidsOf(text)) }

func pidsOf(text string) (pids []string) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		if b, err := os.ReadFile(name); err == nil && bytes.Contains(b, []byte(text)) && bytes.HasPrefix(b, []byte("node")) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}
