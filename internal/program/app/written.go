package app

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	"slipway/internal/platform/text"
	"slipway/internal/program/runtime"
)

// maxWritten caps the places that a deployment's log names.
const maxWritten = 20

// losses notes where a deployment's programs wrote that isn't kept.
type losses struct {
	p    *program
	want Wanted
}

// Wrote says so once in the site's log.
func (l losses) Wrote(list []runtime.Written) {
	p, want := l.p, l.want
	p.mu.Lock()
	var added []runtime.Written
	for _, w := range list {
		if rel, ok := strings.CutPrefix(w.Path, want.Root+"/"); ok && want.Root != "" {
			w.Path = rel
		} else if want.Root != "" {
			w = runtime.Written{Path: path.Join("/", w.Path)} // beside the project: it can't be storage
		}
		if want.Secrets != nil {
			w.Path = want.Secrets.Redact(w.Path)
		}
		w.Path = text.Printable(w.Path) // a line of the log is one line
		if len(p.written) < maxWritten && !slices.Contains(p.written, w) {
			p.written, added = append(p.written, w), append(added, w)
		}
	}
	p.mu.Unlock()
	for _, line := range lost(added) {
		p.apps.logs.System(want.Site, p.deployment, line)
	}
}

// lost says which files are gone at the next start, and how to keep them.
func lost(list []runtime.Written) (lines []string) {
	var folders, files, quoted []string
	for _, w := range list {
		if !w.Folder {
			files = append(files, w.Path)
			continue
		}
		folders = append(folders, w.Path+"/")
		name, _ := json.Marshal(w.Path) // strings can always be encoded, and TOML reads them
		quoted = append(quoted, string(name))
	}
	if len(folders) > 0 {
		lines = append(lines, "Files in "+strings.Join(folders, ", ")+" are lost at the next restart. To keep them: storage = ["+
			strings.Join(quoted, ", ")+"] under [run] in slipway.toml, or in the site's settings")
	}
	if len(files) > 0 {
		lines = append(lines, "Files that are lost at the next restart: "+strings.Join(files, ", ")+
			". To keep them, write them to a folder that is named in storage under [run] in slipway.toml")
	}
	return lines
}
