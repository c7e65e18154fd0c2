package framework

import (
	"path"
	"slices"
	"strings"

	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

// What a .htaccess of a PHP project asks for beside its front controller.
var (
	apacheCloses = lazyregexp.New(
		`(?im)^[ \t]*(authtype|deny[ \t]+from|require[ \t]+(all[ \t]+denied|ip|user|valid-user|group|host))|` +
			`^[ \t]*rewriterule[ \t].*\[([^\]]*,)?[ \t]*f[ \t]*[,\]]`,
	)
	apacheSets = lazyregexp.New(`(?im)^[ \t]*(php_value|php_flag|redirect|redirectmatch|redirectpermanent|errordocument|header)[ \t]`)

	closesAll    = lazyregexp.New(`(?i)^(deny\s+from\s+all|require\s+(all\s+denied|valid-user|user\s.*|group\s.*))$`)
	transparent  = lazyregexp.New(`(?i)^<(ifmodule|ifversion|ifdefine|requireall|requireany)\b`)
	namedFile    = lazyregexp.New(`(?i)^<files\s+"?([\w.-]+)"?\s*>$`)
	rewriteRule  = lazyregexp.New(`(?i)^rewriterule\s+(\S+)\s+(\S+)(?:\s+\[(.*)\])?$`)
	wholeFolders = lazyregexp.New(`^\^?/?\(?((?:\\?[\w.-])+(?:\|(?:\\?[\w.-])+)*)\)?/(?:\(?\.[*+]\)?)?\$?$`)
	anyPath      = lazyregexp.New(`^\^?\(?(?:\.[*+]?)?\)?\$?$`)
	frontScript  = lazyregexp.New(`^/?([\w./-]+\.php)(?:[/?].*)?$`)
)

// Bounds of what is taken from files of Apache.
const (
	maxApache      = 5 // warnings
	maxApacheFiles = 100
	maxClosed      = 200
)

// apacheRules is what is understood of a .htaccess.
type apacheRules struct {
	whole  bool     // its folder is closed
	closed []string // paths below it that are
	front  string   // the script that answers for what is no file
}

// readApache takes what closes whole folders or single files, and the front controller.
func readApache(text string) (r apacheRules) {
	var sections []string // the file that each is about; "" is none, "?" something else
	conditional := false
	for line := range strings.Lines(text) {
		line = strings.Join(strings.Fields(line), " ")
		of := ""
		for _, s := range sections {
			if of != "?" && s != "" {
				of = s
			}
		}
		switch {
		case line == "" || line[0] == '#':
			continue
		case strings.HasPrefix(line, "</"):
			if len(sections) > 0 {
				sections = sections[:len(sections)-1]
			}
		case line[0] == '<':
			about := "?"
			if f := namedFile.FindStringSubmatch(line); f != nil {
				about = f[1]
			} else if transparent.MatchString(line) {
				about = ""
			}
			sections = append(sections, about)
		case of == "?":
		case closesAll.MatchString(line):
			if of != "" {
				r.closed = append(r.closed, of)
			} else {
				r.whole = true
			}
		case of != "":
		default:
			r.rewrite(line, conditional)
			conditional = strings.HasPrefix(strings.ToLower(line), "rewritecond")
		}
	}
	return r
}

func (r *apacheRules) rewrite(line string, conditional bool) {
	if words := strings.Fields(line); len(words) == 2 && strings.EqualFold(words[0], "fallbackresource") {
		if f := frontScript.FindStringSubmatch(words[1]); f != nil {
			r.front = f[1]
		}
	}
	rule := rewriteRule.FindStringSubmatch(line)
	if rule == nil {
		return
	}
	front := frontScript.FindStringSubmatch(rule[2])
	folders := wholeFolders.FindStringSubmatch(rule[1])
	forbids := slices.ContainsFunc(strings.Split(rule[3], ","), func(flag string) bool {
		return slices.Contains([]string{"f", "forbidden", "r=404", "r=403"}, strings.ToLower(strings.TrimSpace(flag)))
	})
	switch {
	case folders != nil && !conditional && (forbids || front != nil): // the script answers instead of what is there
		for name := range strings.SplitSeq(folders[1], "|") {
			r.closed = append(r.closed, strings.ReplaceAll(name, `\`, ""))
		}
	case front != nil && anyPath.MatchString(rule[1]) && r.front == "":
		r.front = front[1]
	}
}

// apache takes from files of Apache in the document root of a PHP project what they close and which script answers for the
// rest, and warns of what else they ask for.
func (p *project) apache(d *draft) {
	if d.Runtime != PHP || d.Start == nil {
		return
	}
	root, n, files := worktree.Join(p.root, d.Start.DocumentRoot), 0, 0
	for _, at := range slices.Compact([]string{worktree.Join(p.root, "php.ini"), worktree.Join(root, "php.ini")}) {
		if p.t.Has(at) {
			d.warn(at + " is not read; settings of PHP are read from .user.ini in the document root")
		}
	}
	for _, f := range p.t.List {
		if path.Base(f) != ".htaccess" || root != "" && !strings.HasPrefix(f, root+"/") || files == maxApacheFiles {
			continue
		}
		files++
		text := p.t.Config(f)
		rules := readApache(text)
		dir := strings.TrimPrefix(strings.TrimPrefix(worktree.Parent(f), root), "/")
		if rules.whole && dir != "" {
			rules.closed = []string{""}
		}
		for _, name := range rules.closed {
			if at := worktree.Join(dir, name); len(d.Start.Closed) < maxClosed && !slices.Contains(d.Start.Closed, at) {
				d.Start.Closed = append(d.Start.Closed, at)
			}
		}
		if dir == "" && rules.front != "" && p.has(worktree.Join(d.Start.DocumentRoot, rules.front)) {
			d.Start.FrontController = path.Clean(rules.front)
		}
		warning := ""
		switch {
		case rules.whole && dir == "":
			warning = "it closes the whole site, which is not obeyed; the site's serving settings can ask for a password"
		case apacheCloses.MatchString(text) && len(rules.closed) == 0:
			warning = "rules of Apache are not obeyed, so what it closes may be open to visitors; name that in closed under [run] in " +
				"slipway.toml, or move it out of the document root"
		case apacheSets.MatchString(text):
			warning = "rules of Apache are not obeyed; settings of PHP are read from .user.ini"
		}
		if warning != "" && n < maxApache {
			d.warn(f + ": " + warning)
			n++
		}
	}
	slices.Sort(d.Start.Closed)
	if front := p.s.commands.run.FrontController; front != nil {
		d.Start.FrontController = *front
	} else if d.pathsMissing && d.Start.FrontController == "" {
		d.warn(`Paths that name no file are 404. If index.php answers for them, set front_controller = "index.php" under [run] in slipway.toml`)
	}
}
