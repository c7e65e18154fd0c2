package htaccess

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is what a path is.
type Kind int

// Kinds of paths. Empty is a file without a byte.
const (
	Nothing Kind = iota
	File
	Empty
	Dir
)

// The limits of one request.
const (
	maxRounds = 10      // internal redirects, as Apache has it
	maxWork   = 4 << 20 // steps of patterns, of 5 to 15 ns: bytes times the states that may be alive at each
	maxStats  = 200     // files that conditions ask for
	maxURL    = 8 << 10 // bytes of a path or query that rules make
	statCost  = maxWork / maxStats
)

// Map is what the .htaccess files of a document root say, ready to be asked. It is safe for concurrent use.
type Map struct {
	folders map[string]*folder
	access  map[string]*Rules
	shut    bool // it can't be compiled, and answers nothing
}

type folder struct {
	Folder
	on      bool
	jumps   bool // a rule decides which of the next ones apply
	rules   []rule
	aliases []alias
}

type rule struct {
	Rule
	form
	conds []cond
}

type cond struct {
	Cond
	form
}

type alias struct {
	Alias
	form
}

// form is a compiled pattern.
type form struct {
	pattern, but *regexp.Regexp // A nil pattern matches everything, a nil but nothing.
	prefix       string         // begins each text that pattern matches
	steps        int            // for each byte of a text
}

// Compile makes translated files ready. It returns nil without any, and with an error what closes everything.
func Compile(list []Folder) (*Map, error) { return compile(list, maxWeight) }

// Check reports whether the files of a new deployment can be compiled. It allows less than Compile, which must accept the deployments
// of earlier versions.
func Check(list []Folder) error {
	for _, f := range list {
		for _, up := range list {
			if (f.Inherits || up.Inherits) && f.Rewrites && f.Path != up.Path && within(f.Path, up.Path) &&
				slices.ContainsFunc(up.Rules, Rule.closes) {
				return fmt.Errorf("RewriteOptions Inherit is not supported: repeat the rules that close paths in %s/.htaccess", f.Path)
			}
		}
	}
	_, err := compile(list, maxNewWeight)
	return err
}

func (r Rule) closes() bool { return r.Status >= 400 }

// within reports whether a folder is another one, or lies in it.
func within(dir, up string) bool { return up == "" || dir == up || strings.HasPrefix(dir, up+"/") }

func compile(list []Folder, limit int) (*Map, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := &Map{folders: map[string]*folder{}, access: map[string]*Rules{}}
	weight := 0
	for _, f := range list {
		c := &folder{Folder: f}
		m.folders[f.Path] = c
		if f.Access != "" {
			r, err := parse(f.Access)
			switch {
			case err != nil && f.Path == "":
				return &Map{shut: true}, err
			case err != nil:
				r = Closed()
			case f.Path == "":
				r.folder = access{} // a site that is closed as a whole has a password in its settings
			}
			m.access[f.Path] = r
		}
		var err error
		ready := func(pattern, but string, noCase bool) form {
			var f form
			if err == nil {
				f, err = newForm(pattern, but, noCase, limit, &weight)
			}
			return f
		}
		for _, r := range f.Rules {
			x := rule{Rule: r, form: ready(r.Pattern, r.But, false)}
			for _, k := range r.Conds {
				y := cond{Cond: k}
				if !k.Is && !k.File && !k.Base {
					y.form = ready(k.Pattern, k.But, k.NoCase)
				}
				x.conds = append(x.conds, y)
			}
			c.rules, c.jumps = append(c.rules, x), c.jumps || r.Chain || r.Skip > 0 || r.Again
		}
		for _, a := range f.Aliases {
			x := alias{Alias: a}
			if a.Match {
				x.form = ready(a.From, a.But, false)
			}
			c.aliases = append(c.aliases, x)
		}
		if err != nil {
			return &Map{shut: true}, err
		}
	}
	for at, f := range m.folders {
		f.on = true // without a word about the engine, too: what rules close is not to be open
		for dir := range upwards(at) {
			if up := m.folders[dir]; up != nil && up.Engine != nil {
				f.on = *up.Engine
				break
			}
		}
	}
	return m, nil
}

// upwards yields a folder, relative to the document root, and those above it, the root as "".
func upwards(dir string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for yield(dir) && dir != "" {
			if dir = path.Dir(dir); dir == "." {
				dir = ""
			}
		}
	}
}

// Request is what rules are asked about.
type Request struct {
	Method string
	Path   string // clean and decoded, with its slashes at both ends
	Query  string
	Asked  string // as it was sent
	Host   string
	HTTPS  bool
	Remote string // address
	Header http.Header
	Root   string // the document root, as PHP sees it
	Files  Files  // of the site
}

// Files are a site's, as PHP sees them.
type Files interface {
	// Stat says what an absolute path is.
	Stat(name string) Kind
}

// Answer says what becomes of a request.
type Answer struct {
	Status   int    // of a redirect, a refusal, or rules that lead in circles; 0: Path is answered
	Location string // of a redirect
	Path     string
	Query    string
	Moved    bool              // Path is not the one that was asked for
	Env      map[string]string // what rules set
}

// asked is a request under way through the rules.
type asked struct {
	*Request
	m     *Map
	work  int
	stats map[string]Kind
	full  bool // of stats: more are asked for
	env   map[string]string
	known bool // only what is known of every request may be asked: see Touches
	vague bool // the last text has something else
	maybe bool // and so a condition may hold or not

	closes bool // the rule does: a file is none the worse for being shown to a query that would be refused
}

var errWork = errors.New("the rules take too long")

// Route says what the rules make of a request.
func (m *Map) Route(q Request) Answer {
	if m.shut {
		return Answer{Status: http.StatusInternalServerError}
	}
	a := &asked{Request: &q, m: m, env: map[string]string{}}
	name, query := q.Path, q.Query
	for round := 0; ; round++ {
		if round == maxRounds {
			return Answer{Status: http.StatusInternalServerError}
		}
		out, err := a.round(name, query)
		switch {
		case err != nil || a.full:
			return Answer{Status: http.StatusInternalServerError}
		case out.Status != 0:
			return out.Answer
		}
		if round > 0 || out.Moved {
			for k, v := range a.env {
				if !strings.HasPrefix(k, "REDIRECT_") {
					a.env["REDIRECT_"+k] = v
				}
			}
		}
		moved := out.Moved
		name, query = out.Path, out.Query
		if !moved || out.end {
			maps.Copy(a.env, m.setEnv(name))
			delete(a.env, "REDIRECT_STATUS")
			return Answer{Path: name, Query: query, Moved: name != q.Path, Env: a.env}
		}
		a.env["REDIRECT_STATUS"] = "200"
	}
}

type turn struct {
	Answer
	end bool
}

// round is one pass of a path through the files of Apache that are for it.
func (a *asked) round(name, query string) (turn, error) {
	stay := turn{Answer: Answer{Path: name, Query: query}}
	f, below := a.m.rewriting(name)
	if f != nil {
		out, err := a.rewrite(f, below, name, query)
		if err != nil || out.Status != 0 {
			return out, err
		}
		stay = out
	}
	for dir := range upwards(a.m.dirOf(name)) {
		up := a.m.folders[dir]
		if up == nil {
			continue
		}
		for i := range up.aliases {
			if out, ok, err := a.alias(&up.aliases[i], name, query); ok || err != nil {
				return turn{Answer: out}, err
			}
		}
	}
	if !stay.Moved {
		for dir := range upwards(a.m.dirOf(name)) {
			if up := a.m.folders[dir]; up != nil && up.Fallback != "" {
				to, _, _ := strings.Cut(up.Fallback, "?")
				if to != name && a.stat(a.filename(name)) == Nothing {
					stay.Path, stay.Moved, stay.end = to, true, true
				}
				break
			}
		}
	}
	return stay, nil
}

// dirOf returns the deepest folder with a file of Apache that a path lies in.
func (m *Map) dirOf(name string) string {
	dir := strings.TrimPrefix(name, "/")
	for dir != "" {
		i := strings.LastIndexByte(dir, '/')
		dir = dir[:max(i, 0)]
		if m.folders[dir] != nil {
			return dir
		}
	}
	return ""
}

// rewriting returns the folder whose RewriteRules apply to name, and name relative to it; nil if none apply.
func (m *Map) rewriting(name string) (*folder, string) {
	if f := m.folders[strings.TrimPrefix(name, "/")]; f != nil && f.Path != "" && f.Rewrites {
		return nil, "" // a folder without its slash
	}
	for dir := range upwards(m.dirOf(name)) {
		if f := m.folders[dir]; f != nil && f.Rewrites {
			if !f.on {
				return nil, ""
			}
			return f, strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "/"), dir), "/")
		}
	}
	return nil, ""
}

// rewrite applies a folder's rules to a path below it.
func (a *asked) rewrite(f *folder, below, name, query string) (turn, error) {
	prefix := "/"
	if f.Path != "" {
		prefix += f.Path + "/"
	}
	subject, absolute := below, false // absolute: a rule named a path from the root
	now := func() string {
		if absolute {
			return subject
		}
		return prefix + subject
	}
	stop := turn{}
	for i, loops := 0, 0; i < len(f.rules); i++ {
		r := &f.rules[i]
		groups, matched, err := a.matches(r, subject, now(), query)
		if err != nil {
			return stop, err
		}
		if !matched {
			for r.Chain && i+1 < len(f.rules) {
				i++
				r = &f.rules[i]
			}
			continue
		}
		for _, e := range r.Env {
			if name, unset := strings.CutPrefix(e, "!"); unset {
				delete(a.env, name)
				continue
			}
			name, value, _ := strings.Cut(e, ":")
			if len(a.env) < 2*maxEnv {
				value = a.expand(value, groups, now(), query, false)
				a.env[name] = value[:min(len(value), maxURL)]
			}
		}
		if r.Status >= 400 {
			return turn{Answer: Answer{Status: r.Status}}, nil
		}
		before, wasAbsolute, asked := subject, absolute, query
		if r.To != "-" {
			to := a.expand(r.To, groups, now(), query, r.Encode)
			if to, query, err = r.withQuery(to, query); err != nil {
				return stop, err
			}
			switch {
			case isAddress(to):
				if location := locate(to, query, r.Raw); !a.same(location) {
					return turn{Answer: Answer{Status: cmp.Or(r.Status, http.StatusFound), Location: location}}, nil
				}
				query = asked
				continue
			case strings.HasPrefix(to, a.Root+"/"):
				subject, absolute = strings.TrimPrefix(to, a.Root), true
			case strings.HasPrefix(to, "/"):
				subject, absolute = to, true
			default:
				subject, absolute = to, false
			}
		}
		if r.Status != 0 { // a redirect ends the rules, as with the flag L that nearly all of them have
			at := now()
			if !absolute {
				at = f.place(subject, prefix)
			}
			if location := locate(rooted(at), query, r.Raw); !a.same(location) {
				return turn{Answer: Answer{Status: r.Status, Location: location}}, nil
			}
			subject, absolute, query = before, wasAbsolute, asked
			continue
		}
		if r.Again {
			if loops++; loops < 100 {
				i = -1
				continue
			}
			return stop, errWork
		}
		if r.End || r.Last {
			stop.end = r.End
			break
		}
		i += r.Skip
	}
	stop.Path, stop.Query = name, query
	if now() != name { // where nothing changes, the same path is answered, perhaps with another query
		to := now()
		if !absolute {
			to = f.place(subject, prefix)
		}
		stop.Path, stop.Moved = clean(to), true
		if stop.Path == name {
			stop.Moved = false
		}
	}
	if len(stop.Path) > maxURL || len(stop.Query) > 2*maxURL {
		return stop, errWork
	}
	return stop, nil
}

// place returns the address of a path that is relative to the folder.
func (f *folder) place(subject, prefix string) string {
	if f.Base != "" {
		prefix = strings.TrimSuffix(f.Base, "/") + "/"
	}
	return prefix + subject
}

// rooted has exactly one slash at its beginning: two would name another host.
func rooted(p string) string { return "/" + strings.TrimLeft(p, `/\`) }

// clean is a path without dots and doubled slashes; a slash at its end stays.
func clean(p string) string {
	out := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && out != "/" {
		out += "/"
	}
	return out
}

// withQuery splits a target's query off and returns the one that the request has then.
func (r *Rule) withQuery(to, query string) (string, string, error) {
	if len(to) > 2*maxURL {
		return "", "", errWork
	}
	target, own, has := strings.Cut(to, "?")
	switch {
	case has && r.Append && own != "" && query != "":
		query = own + "&" + query
	case has && r.Append && own == "":
	case has:
		query = own
	case r.Discard:
		query = ""
	}
	if len(query) > 2*maxURL {
		return "", "", errWork
	}
	if has {
		query = escape(query, querySafe)
	}
	return target, query, nil
}

const (
	pathSafe  = "$-_.+!*'(),:@&=/~;"
	querySafe = pathSafe + "%?[]#{}|^`\\"
)

// escape writes what is neither a letter, a digit nor in safe as %XX.
func escape(s, safe string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)+0x100, 16)[1:]))
		}
	}
	return b.String()
}

// locate writes the Location of a redirect to a path or address.
func locate(to, query string, raw bool) string {
	safe := pathSafe
	if raw {
		safe = querySafe
	}
	if isAddress(to) {
		scheme, rest, _ := strings.Cut(to, "://")
		host, at, _ := strings.Cut(rest, "/")
		to = strings.ToLower(scheme) + "://" + escape(host, pathSafe+"[]") + escape("/"+at, safe)
	} else {
		to = escape(to, safe)
	}
	if query != "" {
		before, fragment, ok := strings.Cut(to, "#")
		if to = before + "?" + strings.ReplaceAll(query, "#", "%23"); ok {
			to += "#" + fragment
		}
	}
	return to
}

// same reports whether a redirect leads to the address that was asked for, where it would never end.
func (a *asked) same(location string) bool {
	u, err := url.Parse(location)
	if err != nil {
		return true // nobody could follow it
	}
	if u.IsAbs() && (!strings.EqualFold(u.Host, a.Host) || u.Scheme == "https" && !a.HTTPS) {
		return false
	}
	return rooted(u.Path) == a.Path && u.RawQuery == a.Query
}

// groups are what patterns have caught: of the rule, and of its last condition.
type groups struct{ rule, cond []string }

// matches reports whether a rule is for a path.
func (a *asked) matches(r *rule, subject, name, query string) (groups, bool, error) {
	var g groups
	if r.Never {
		return g, false, nil
	}
	var err error
	if g.rule, err = a.find(&r.form, subject); err != nil || (g.rule != nil) == r.Not {
		return g, false, err
	}
	a.closes = r.Status >= 400
	for i := 0; i < len(r.conds); i++ {
		c := &r.conds[i]
		ok, err := a.holds(c, &g, name, query)
		if err != nil {
			return g, false, err
		}
		switch {
		case ok:
			for i < len(r.conds) && r.conds[i].Or { // the rest of the alternatives doesn't matter
				i++
			}
		case !c.Or:
			return g, false, nil
		}
	}
	return g, true, nil
}

func (a *asked) spend(n int) error {
	if a.work += n + 64; a.work > maxWork {
		return errWork
	}
	return nil
}

// find returns what a pattern and its groups match, or nil.
func (a *asked) find(f *form, text string) ([]string, error) {
	if !strings.HasPrefix(text, f.prefix) {
		return nil, a.spend(0)
	}
	if err := a.spend(len(text) * f.steps); err != nil || f.pattern == nil {
		return []string{text}, err
	}
	found := f.pattern.FindStringSubmatch(text)
	if found != nil && f.but != nil && f.but.MatchString(text) {
		return nil, nil
	}
	return found, nil
}

// holds reports whether a condition holds.
func (a *asked) holds(c *cond, g *groups, name, query string) (bool, error) {
	if c.Always {
		return true, nil
	}
	a.vague = false
	text := a.expand(c.Of, *g, name, query, false)
	if err := a.spend(len(text)); err != nil {
		return false, err
	}
	if a.known && a.vague {
		a.maybe = true
		return true, nil
	}
	var hit bool
	switch {
	case c.Base:
		g.cond = baseOf(text)
		hit = g.cond != nil
	case c.File:
		if err := a.spend(statCost); err != nil {
			return false, err
		}
		if one, ok := a.Files.(only); ok && one.Stat(path.Clean(text)) == Nothing {
			a.maybe = true // there may be such a file
			return true, nil
		}
		switch kind := a.stat(text); c.Pattern {
		case "f", "e":
			hit = kind == File || kind == Empty || c.Pattern == "e" && kind == Dir
		case "d":
			hit = kind == Dir
		case "s":
			hit = kind == File
		}
	case c.Is:
		hit = text == c.Pattern || c.NoCase && strings.EqualFold(text, c.Pattern)
	default:
		found, err := a.find(&c.form, text)
		if err != nil {
			return false, err
		}
		if hit = found != nil; hit && !c.Not {
			g.cond = found
		}
	}
	return hit != c.Not, nil
}

// baseOf matches basePattern.
func baseOf(text string) []string {
	at, below, ok := strings.Cut(text, "::")
	base, inside := strings.CutSuffix(at, "/"+below)
	if !ok || !inside || len(base) < 2 || base[0] != '/' {
		return nil
	}
	return []string{text, base, below}
}

// stat says what an absolute path is.
func (a *asked) stat(name string) Kind {
	if kind, ok := a.stats[name]; ok {
		return kind
	}
	if a.stats == nil {
		a.stats = map[string]Kind{}
	}
	a.full = a.full || len(a.stats) >= maxStats
	if !strings.HasPrefix(name, "/") || len(name) > maxURL || a.full {
		return Nothing
	}
	kind := a.Files.Stat(path.Clean(name))
	a.stats[name] = kind
	return kind
}

// filename returns the file of a path as Apache has it: up to the first part that is no folder.
func (a *asked) filename(name string) string {
	at := a.Root
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		if at = path.Join(at, part); a.stat(at) != Dir {
			break
		}
	}
	if strings.HasSuffix(name, "/") && strings.Trim(name, "/") != "" && at == path.Join(a.Root, name) {
		at += "/"
	}
	return at
}

// expand replaces $N, %N and %{NAME} in a text.
func (a *asked) expand(text string, g groups, name, query string, encode bool) string {
	if !strings.ContainsAny(text, `$%\`) {
		return text
	}
	var b strings.Builder
	put := func(list []string, digit byte) {
		if n := int(digit - '0'); n < len(list) {
			if encode {
				b.WriteString(url.QueryEscape(list[n]))
			} else {
				b.WriteString(list[n])
			}
		}
	}
	for i := 0; i < len(text) && b.Len() <= 4*maxURL; i++ {
		c := text[i]
		more := i+1 < len(text)
		switch {
		case c == '\\' && more:
			i++
			b.WriteByte(text[i])
		case (c == '$' || c == '%') && more && text[i+1] >= '0' && text[i+1] <= '9':
			if i++; c == '$' {
				put(g.rule, text[i])
			} else {
				put(g.cond, text[i])
			}
		case c == '%' && more && text[i+1] == '{':
			variable, _, ok := strings.Cut(text[i+2:], "}")
			if !ok {
				b.WriteByte(c)
				continue
			}
			b.WriteString(a.variable(strings.ToUpper(variable), variable, name, query))
			i += len(variable) + 2
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// variable returns the value of a variable. name and query are those of the moment.
func (a *asked) variable(upper, written, name, query string) string {
	switch upper {
	case "REQUEST_FILENAME", "SCRIPT_FILENAME":
		return a.filename(name)
	case "REQUEST_URI", "LA-U:REQUEST_URI":
		return name
	case "DOCUMENT_ROOT", "CONTEXT_DOCUMENT_ROOT":
		return a.Root
	case "IS_SUBREQ":
		return "false"
	case "CONTEXT_PREFIX", "PATH_INFO", "REMOTE_USER", "AUTH_TYPE":
		return ""
	case "REQUEST_METHOD":
		return a.Method
	case "SERVER_PROTOCOL":
		return "HTTP/1.1"
	case "SERVER_ADDR":
		return "127.0.0.1"
	case "HTTPS":
		return pick(a.HTTPS, "on", "off")
	case "REQUEST_SCHEME":
		return pick(a.HTTPS, "https", "http")
	case "SERVER_PORT":
		return pick(a.HTTPS, "443", "80")
	}
	if kind, variable, ok := strings.Cut(written, ":"); ok && strings.EqualFold(kind, "ENV") {
		if variable == "HTTPS" && a.HTTPS {
			return "on"
		}
		a.vague = a.vague || a.known && variable != "REDIRECT_STATUS" // which is unset at first
		return a.env[variable]
	}
	if upper == "QUERY_STRING" {
		a.vague = a.vague || !a.closes
		return query
	}
	a.vague = true
	switch upper {
	case "HTTP_HOST":
		return a.Host
	case "SERVER_NAME":
		host, _, _ := strings.Cut(a.Host, ":")
		return host
	case "REMOTE_ADDR", "REMOTE_HOST":
		return a.Remote
	case "THE_REQUEST":
		return a.Method + " " + a.Asked + " HTTP/1.1"
	}
	header := headerVariables[upper]
	if kind, name, ok := strings.Cut(written, ":"); ok && strings.EqualFold(kind, "HTTP") {
		header = name
	}
	switch header = http.CanonicalHeaderKey(header); header {
	case "":
		return ""
	case "X-Forwarded-Proto":
		return pick(a.HTTPS, "https", "http")
	case "Host", "X-Forwarded-Host":
		return a.Host
	case "X-Forwarded-For", "X-Real-Ip": // what a visitor says of these doesn't count
		return a.Remote
	case "Forwarded":
		return ""
	}
	return strings.Join(a.Header[header], ", ")
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// alias applies a Redirect to a path.
func (a *asked) alias(r *alias, name, query string) (Answer, bool, error) {
	if err := a.spend(len(name)); err != nil {
		return Answer{}, false, err
	}
	to, rest := r.To, ""
	if r.Match {
		found, err := a.find(&r.form, name)
		if found == nil || err != nil {
			return Answer{}, false, err
		}
		to = a.expand(strings.ReplaceAll(to, "%", `\%`), groups{rule: found}, name, query, false)
	} else {
		var ok bool
		from := strings.TrimSuffix(r.From, "/")
		if rest, ok = strings.CutPrefix(name, from); !ok || rest != "" && rest[0] != '/' || rest == "" && from != r.From && name != r.From {
			return Answer{}, false, nil
		}
		if strings.HasSuffix(r.From, "/") {
			rest = strings.TrimPrefix(rest, "/")
		}
	}
	if r.Status >= 400 {
		return Answer{Status: r.Status}, true, nil
	}
	target, own, has := strings.Cut(to, "?")
	if !has {
		own = query
	}
	target, fragment, _ := strings.Cut(target, "#")
	if !isAddress(target) {
		target = rooted(target)
	}
	location := escape(target, pathSafe+"%[]") + escape(rest, pathSafe)
	if own != "" {
		location += "?" + escape(own, querySafe)
	}
	if fragment != "" {
		location += "#" + escape(fragment, querySafe)
	}
	if len(location) > 2*maxURL {
		return Answer{}, false, errWork
	}
	if a.same(location) {
		return Answer{}, false, nil
	}
	return Answer{Status: r.Status, Location: location}, true, nil
}

// setEnv returns what SetEnv sets for a path.
func (m *Map) setEnv(name string) map[string]string {
	var out map[string]string
	for dir := range upwards(m.dirOf(name)) {
		if f := m.folders[dir]; f != nil && f.Env != nil {
			if out == nil {
				out = map[string]string{}
			}
			inner := maps.Clone(f.Env)
			maps.Copy(inner, out) // the deepest folder decides
			out = inner
		}
	}
	return out
}

// Document returns the ErrorDocument of a status for a path; empty: there is none.
func (m *Map) Document(name string, status int) string {
	if m == nil {
		return ""
	}
	for dir := range upwards(m.dirOf(name)) {
		if f := m.folders[dir]; f != nil && f.Errors[strconv.Itoa(status)] != "" {
			return f.Errors[strconv.Itoa(status)]
		}
	}
	return ""
}

// Index returns the names that DirectoryIndex gives a folder, or nil.
func (m *Map) Index(dir string) []string {
	if m == nil {
		return nil
	}
	for at := range upwards(dir) {
		if f := m.folders[at]; f != nil && f.Index != nil {
			return f.Index
		}
	}
	return nil
}

// Hides reports whether a file, relative to the document root, is closed to visitors.
func (m *Map) Hides(file string) bool {
	return m != nil && m.shut || m != nil && len(m.access) > 0 && Hides("", file, func(folder string) *Rules { return m.access[folder] })
}

// Touches reports whether rules could answer for a file, relative to the document root, in its place. It asks for nothing but what
// every visitor's request has.
func (m *Map) Touches(file string, root string) bool {
	if m == nil {
		return false
	}
	if m.shut || m.Hides(file) {
		return true
	}
	name := "/" + file
	a := &asked{Request: &Request{
		Method: http.MethodGet, Path: name, HTTPS: true, Root: root, Files: only(path.Join(root, file)),
	}, m: m, env: map[string]string{}, known: true}
	if f, below := m.rewriting(name); f != nil {
		for i := range f.rules {
			r := &f.rules[i]
			a.maybe = false
			_, hit, err := a.matches(r, below, name, "")
			switch {
			case err != nil || a.full:
				return true
			case !hit || r.To == "-" && r.Status == 0 && !r.Last && !r.End:
				continue
			case r.To != "-" || r.Status != 0:
				return true
			case !a.maybe && !f.jumps: // nothing is done for this path
				return m.aliased(a, name)
			}
		}
	}
	return m.aliased(a, name)
}

// only is the one file that there is for Touches.
type only string

func (f only) Stat(name string) Kind {
	switch {
	case name == string(f):
		return File
	case strings.HasPrefix(string(f), strings.TrimSuffix(name, "/")+"/"):
		return Dir
	}
	return Nothing
}

func (m *Map) aliased(a *asked, name string) bool {
	for dir := range upwards(m.dirOf(name)) {
		if f := m.folders[dir]; f != nil {
			for i := range f.aliases {
				if _, ok, err := a.alias(&f.aliases[i], name, ""); ok || err != nil {
					return true
				}
			}
		}
	}
	return false
}
