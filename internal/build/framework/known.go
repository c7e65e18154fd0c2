package framework

import (
	"fmt"
	"slices"
	"strings"
)

// application is one that writes to folders of its own, and that people run from its repository.
type application struct {
	name  string
	files []string // all of them are there
	pkg   string   // the name of its package.json, or a dependency. Optional: files decide.
	// Folders that it writes to, as Start has them.
	storage, temporary []string
	extensions         []string // PHP: those that it needs and names nowhere
	closed             []string // PHP: what visitors never read, relative to the document root, as the manual asks for
	root               string   // PHP: the folder that is served, if it isn't the one with the first index.php
}

// applications are those whose folders are known. Each line was taken from the application's own manual.
var applications = []application{
	{
		name: "DokuWiki", files: []string{"doku.php", "inc/init.php"}, storage: []string{"conf", "data"},
		closed: []string{"bin", "conf", "data", "inc", "vendor"},
	},
	{
		name: "Kanboard", files: []string{"jsonrpc.php", "app/common.php"}, storage: []string{"data"},
		closed: []string{"data"},
	},
	{name: "FreshRSS", files: []string{"constants.php", "p/i/index.php"}, storage: []string{"data"}, root: "p"},
	{
		name: "Grav", files: []string{"system/defines.php", "bin/grav"}, temporary: []string{"cache", "tmp"},
		storage: []string{"assets", "backup", "images", "logs", "user/accounts", "user/data"},
		closed:  []string{"backup", "bin", "cache", "logs", "tmp", "user/accounts", "user/config", "user/data"},
	},
	{
		name: "Kirby", files: []string{"kirby/bootstrap.php"}, temporary: []string{"site/cache"},
		storage: []string{"media", "site/accounts", "site/logs", "site/sessions"}, // content is the repository's
		closed:  []string{"content", "kirby", "site"},
	},
	{
		name: "Bludit", files: []string{"bl-kernel/boot/init.php"}, storage: []string{"bl-content"},
		extensions: []string{"dom", "gd", "json", "mbstring", "zip"},
		closed:     []string{"bl-content/databases", "bl-content/pages", "bl-content/workspaces"},
	},
	{
		name: "GetSimple", files: []string{"admin/inc/common.php", "temp.gsconfig.php"}, storage: []string{"backups", "data"},
		extensions: []string{"curl", "gd", "simplexml", "zip"},
		closed:     []string{"backups", "data/cache", "data/other", "data/pages", "data/users"},
	},
	{
		name: "PluXml", files: []string{"core/lib/class.plx.motor.php"}, storage: []string{"data"},
		extensions: []string{"gd", "xml"},
		closed:     []string{"data/articles", "data/commentaires", "data/configuration"},
	},
	{
		name: "WonderCMS", files: []string{"index.php", "themes/sky/theme.php"}, storage: []string{"data", "plugins", "themes"},
		extensions: []string{"curl", "mbstring", "zip"},
		closed:     []string{"data/database.js"},
	},
	{name: "Uptime Kuma", files: []string{"server/server.js"}, pkg: "uptime-kuma", storage: []string{"data"}},
	{name: "Node-RED", pkg: "node-red", storage: []string{".node-red", "data"}},
	{
		name: "Ghost", pkg: "ghost",
		storage: []string{"content/data", "content/files", "content/images", "content/logs", "content/media", "content/settings"},
	},
	{name: "Etherpad", files: []string{"settings.json.template", "src/node/server.ts"}, storage: []string{"var"}},
}

func (p *project) is(a application) bool {
	if slices.ContainsFunc(a.files, func(f string) bool { return !p.has(f) }) {
		return false
	}
	return a.pkg == "" || p.pkg != nil && (p.pkg.Name == a.pkg || p.pkg.ProdDep(a.pkg) != "")
}

// known adds the folders of a known application to a program.
func (p *project) known(d *draft) {
	if d.Start == nil {
		return
	}
	for _, a := range applications {
		if p.is(a) {
			var committed []string
			for _, dir := range a.storage {
				if !slices.Contains(d.Start.Storage, dir) {
					d.Start.Storage = append(slices.Clone(d.Start.Storage), dir)
				}
				if p.hasDir(dir) {
					committed = append(committed, dir)
				}
			}
			if d.Runtime == PHP {
				d.Start.Closed = append(slices.Clone(d.Start.Closed), a.closed...)
				for i := range d.Tools {
					if d.Tools[i].Name == "php" {
						d.Tools[i].Extensions = append(slices.Clone(d.Tools[i].Extensions), a.extensions...)
					}
				}
			}
			d.Start.Temporary = append(slices.Clone(d.Start.Temporary), a.temporary...)
			if place := p.s.place.DocumentRoot; a.root != "" && place == nil && d.Runtime == PHP {
				d.Start.DocumentRoot, d.Start.FrontController, d.Assets = a.root, "", []AssetFolder{{Folder: a.root}}
			}
			if len(committed) > 0 {
				d.warn(fmt.Sprintf("%s keeps %s in storage: what later commits change there isn't deployed", a.name, strings.Join(committed, ", ")))
			}
			return
		}
	}
}
