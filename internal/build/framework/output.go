package framework

import (
	"cmp"
	"strings"

	"slipway/internal/build/worktree"
)

// siteFolders lists the usual folders of a site without a build, in the order in which they are tried; "" is the root
// directory. The root comes before docs, because sites often have pages in /docs/, and a project with only a docs
// folder of pages has none at the root.
var siteFolders = []string{"public", "dist", "_site", "build", "", "docs"}

func (p *project) indexFolder() (string, bool) {
	for _, f := range siteFolders {
		if p.has(worktree.Join(f, "index.html")) || p.has(worktree.Join(f, "index.htm")) {
			return f, true
		}
	}
	return "", false
}

// nothing is the error for a folder that no preset matches.
func (p *project) nothing() error {
	if err := cmp.Or(p.forWordPress(), p.otherServer(), p.otherLanguage()); err != nil {
		return err
	}
	if list := p.scripts(); len(list) > 1 {
		return invalid("This is PHP without an index.php ("+strings.Join(list[:min(len(list), 4)], ", ")+")",
			`add index.php, which answers for /, or set framework = "php" and, under [run], front_controller = "`+list[0]+`" in slipway.toml`,
			nil)
	}
	where := "" // of a repository, or of what was uploaded
	if p.root != "" {
		where = " in the root directory " + p.root
	}
	return invalid("Slipway found nothing to build or publish"+where,
		"add an index.html to public, dist, _site, build, docs or the root directory, set the root directory, name the build "+
			"command and output folder in slipway.toml, or, for a server, add a start script to package.json or a Procfile",
		nil)
}

func shown(folder string) string {
	if folder == "" {
		return "the root directory"
	}
	return folder
}
