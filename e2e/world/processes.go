package world

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// podSpec is what a program elsewhere is given, as its processes see it: a pod's, on a node that is namespaces of this machine.
const podSpec = "root/slipway/spec/spec.json"

// Processes returns the pids of all that runs with a text in its command line and belongs to this installation: its sandboxes show
// the installation's folder, its pods are told an address of its edge. Root is needed for those of pods.
func (w *World) Processes(text string) (pids []string) {
	data := []byte(strings.TrimPrefix(w.Dir, filepath.Dir(os.TempDir())) + "/") // which may be a file system of its own
	_, port, _ := net.SplitHostPort(w.HTTPS)
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		// What has ended meanwhile has no files.
		line, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		dir := filepath.Dir(name)
		own := false
		if elsewhere() {
			spec, err := os.ReadFile(filepath.Join(dir, podSpec))
			_, address, found := bytes.Cut(spec, []byte(`"SLIPWAY_URL=`))
			address, _, _ = bytes.Cut(address, []byte{'"'})
			own = err == nil && found && bytes.HasSuffix(address, []byte(":"+port))
		} else {
			mounts, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
			own = err == nil && bytes.Contains(mounts, data)
		}
		if own {
			pids = append(pids, filepath.Base(dir))
		}
	}
	return pids
}
