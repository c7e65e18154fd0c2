package framework

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"slipway/internal/build/htaccess"
	"slipway/internal/build/worktree"
	"slipway/internal/platform/lazyregexp"
)

var (
	closesAll    = lazyregexp.New(`(?i)^(deny\s+from\s+all|require\s+(all\s+denied|valid-user|user\s.*|group\s.*))$`)
	transparent  = lazyregexp.New(`(?i)^<(ifmodule|ifversion|ifdefine|requireall|requireany)\b`)
	namedFile    = lazyregexp.New(`(?i)^<files\s+"?([\w.-]+)"?\s*>$`)
	rewriteRule  = lazyregexp.New(`(?i)^rewriterule\s+(\S+)\s+(\S+)(?:\s+\[(.*)\])?$`)
	wholeFolders = lazyregexp.New(`^\^?/?\(?((?:\\?[\w.-])+(?:\|(?:\\?[\w.-])+)*)\)?/(?:\(?\.[*+]\)?)?\$?$`)
	anyPath      = lazyregexp.New(`^\^?\(?(?:\.[*+]?)?\)?\$?$`)
	frontScript  = lazyregexp.New(`^/?([\w./-]+\.php)(?:[/?].*)?$`)
)

// MaxApacheFiles is how many files of Apache of a project are read.
const MaxApacheFiles = 200

// Bounds of what is taken from files of Apache.
const (
	maxApache      = 12 // warnings
	maxClosed      = 200
	maxApacheRules = 512 << 10 // bytes of all rules, as they are stored
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

// apache takes from files of Apache in the document root of a PHP project what they close, which script answers for the
// rest, and the rules about addresses, and warns of what isn't understood.
func (p *project) apache(d *draft) {
	if d.Runtime != PHP || d.Start == nil {
		return
	}
	root := worktree.Join(p.root, d.Start.DocumentRoot)
	for _, at := range slices.Compact([]string{worktree.Join(p.root, "php.ini"), worktree.Join(root, "php.ini")}) {
		if p.t.Has(at) {
			d.warn(at + " is not read; settings of PHP are read from .user.ini in the document root")
		}
	}
	var files []ApacheFile
	for _, f := range p.t.List {
		if path.Base(f) == ".htaccess" && (root == "" || strings.HasPrefix(f, root+"/")) {
			text := ""
			if len(files) < MaxApacheFiles {
				text = p.t.Config(f)
			}
			files = append(files, ApacheFile{f, strings.TrimPrefix(strings.TrimPrefix(worktree.Parent(f), root), "/"), text})
		}
	}
	var front string
	rules, problems, err := Apache(files, func(f ApacheFile) {
		r := readApache(f.Text)
		if r.whole && f.Dir != "" {
			r.closed = []string{""}
		} else if r.whole {
			d.warn(f.Name + ": it closes the whole site, which is not obeyed; the site's serving settings can ask for a password")
		}
		for _, name := range r.closed {
			if at := worktree.Join(f.Dir, name); len(d.Start.Closed) < maxClosed && !slices.Contains(d.Start.Closed, at) {
				d.Start.Closed = append(d.Start.Closed, at)
			}
		}
		if f.Dir == "" && r.front != "" && p.has(worktree.Join(d.Start.DocumentRoot, r.front)) {
			front = path.Clean(r.front)
		}
	})
	if err != nil {
		p.t.Refuse(err.File, err.Why, err.Remedy)
		return
	}
	for _, problem := range problems {
		d.warn(problem)
	}
	d.Start.Rules = rules
	slices.Sort(d.Start.Closed)
	if front != "" {
		d.Start.FrontController = front
		d.Start.Ruled = slices.ContainsFunc(rules, func(f htaccess.Folder) bool {
			return f.Path == "" && ((f.Engine == nil || *f.Engine) && slices.ContainsFunc(f.Rules, leadsToFront) || f.Fallback != "")
		})
	}
	place := p.s.place
	if place.FrontController != nil {
		d.Start.FrontController, d.Start.Ruled = *place.FrontController, false
	}
	switch on := place.Passthru; {
	case on != nil && !*on:
		d.Start.FrontController, d.Start.Ruled = "", false
	case on != nil && d.Start.FrontController == "":
		d.Start.FrontController = "index.php"
	case on != nil:
		d.Start.Ruled = false
	}
	if d.pathsMissing && place.FrontController == nil && place.Passthru == nil && d.Start.FrontController == "" {
		d.warn(`Paths that name no file are 404. If index.php answers for them, set front_controller = "index.php" under [run] in slipway.toml`)
	}
}

// leadsToFront reports whether a rule leads most paths to a script.
func leadsToFront(r htaccess.Rule) bool {
	return !r.Never && r.Status == 0 && strings.Contains(r.To, ".php")
}

// ApacheFile is a .htaccess of a PHP project.
type ApacheFile struct {
	Name string // as people know it
	Dir  string // its folder, below the document root
	Text string
}

// ApacheError is about a file of Apache that closes what would be open without it.
type ApacheError struct{ File, Why, Remedy string }

func (e *ApacheError) Error() string { return e.File + ": " + e.Why }

// Apache translates the files of Apache below a document root, and says what of them is not obeyed. Of too many files, the folders
// of the rest are closed. look sees each.
func Apache(files []ApacheFile, look func(f ApacheFile)) (rules []htaccess.Folder, problems []string, _ *ApacheError) {
	left, size := 0, 0
	for i, f := range files {
		if i >= MaxApacheFiles {
			if i == MaxApacheFiles {
				problems = append(problems, fmt.Sprintf("%s: there are more than %d such files, so the folders of the rest are closed", f.Name, i))
			}
			f.Text = "Require all denied"
		}
		if look != nil && i < MaxApacheFiles {
			look(f)
		}
		rule, list := htaccess.Translate(f.Dir, f.Text)
		for _, p := range list {
			switch where := fmt.Sprintf("%s line %d", f.Name, p.Line); {
			case p.Fatal:
				return nil, nil, &ApacheError{f.Name, fmt.Sprintf("line %d: %s", p.Line, p.Text), "correct it, or remove the file"}
			case len(problems) == maxApache:
				left++
			default:
				problems = append(problems, where+": "+p.Text)
			}
		}
		b, err := json.Marshal(rule)
		if size += len(b); err != nil || size > maxApacheRules {
			return nil, nil, &ApacheError{f.Name, "all rules of Apache together are too large", "remove rules that the application doesn't need"}
		}
		rules = append(rules, rule)
	}
	if err := htaccess.Check(rules); err != nil {
		return nil, nil, &ApacheError{".htaccess", err.Error(), "change the rules, or remove those that the application doesn't need"}
	}
	if left > 0 {
		problems = append(problems, fmt.Sprintf("%d more lines of .htaccess files are not obeyed", left))
	}
	return slices.DeleteFunc(rules, htaccess.Folder.Empty), problems, nil
}
