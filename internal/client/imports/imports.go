// Package imports owns reading a user's sites from other platforms and planning the Slipway sites to create. It reads
// with the user's own token and changes nothing.
//
// The token is sent only to the platform. Responses are limited. If the token can't read something, or it changes while
// being read, the plan is partial rather than wrong.
package imports

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"slipway/internal/platform/dotenv"
)

// Platform is a supported platform.
type Platform struct {
	ID    string // name on the command line
	Name  string
	Base  string // base URL of its API
	Token string // variable from which its own command line reads the token
	Help  string // where users create a token
	read  func(ctx context.Context, s *source) ([]*Site, error)
}

// Platforms returns all supported platforms.
func Platforms() []Platform {
	return []Platform{
		{
			"netlify", "Netlify", "https://api.netlify.com/api/v1", "NETLIFY_AUTH_TOKEN",
			"User settings, Applications, Personal access tokens", netlify,
		},
		{"vercel", "Vercel", "https://api.vercel.com", "VERCEL_TOKEN", "Account settings, Tokens", vercel},
	}
}

// Plan lists what an import would create.
type Plan struct {
	Platform string   `json:"platform"`
	Sites    []*Site  `json:"sites"`
	Partial  []string `json:"partial"` // messages about what couldn't be read
}

// Site is a site of the platform and its counterpart here.
type Site struct {
	ID       string   `json:"id"` // id on the platform
	Proposal Proposal `json:"proposal"`
	Domains  []string `json:"domains"`
	Carried  []string `json:"carried"`    // messages about what is imported
	Left     []string `json:"notCarried"` // messages about what isn't imported, and what to do
	Done     string   `json:"siteId"`     // site that an earlier import created
}

// Proposal is the request that creates the site, with the fields of the REST interface.
type Proposal struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Source     string `json:"source,omitempty"`
	Repository string `json:"repository,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Build      Build  `json:"build"`
	Run        Run    `json:"run"`
	Env        []Var  `json:"env,omitempty"`
}

// Build holds build settings. Empty fields are detected.
type Build struct {
	Command string `json:"command,omitempty"`
	Install string `json:"install,omitempty"`
	Output  string `json:"output,omitempty"`
	Root    string `json:"root,omitempty"`
	Node    string `json:"node,omitempty"`
}

// Run holds settings of the program.
type Run struct {
	Command     string `json:"command,omitempty"`
	HealthCheck *Check `json:"healthCheck,omitempty"`
}

// Check is the path of a health check.
type Check struct {
	Path string `json:"path"`
}

// Var is an environment variable.
type Var struct {
	Key    string   `json:"key"`
	Value  string   `json:"value"`
	Secret bool     `json:"secret,omitempty"`
	Target []string `json:"target,omitempty"`
	Branch string   `json:"branch,omitempty"`
}

// Limits of a plan.
const (
	maxSites  = 1000
	maxVars   = 1000
	maxValue  = 32 << 10
	maxListed = 20 // names per sentence
)

// Read reads a platform's sites. If only isn't empty, just the sites with these names or ids are read completely.
// account selects a team or account on platforms that have them.
func Read(ctx context.Context, p Platform, token, account string, only []string) (Plan, error) {
	s, err := newSource(p, token, account)
	if err != nil {
		return Plan{}, err
	}
	s.only = only
	sites, err := p.read(ctx, s)
	if err != nil {
		return Plan{}, err
	}
	seen := map[string]bool{}
	plan := Plan{Platform: p.ID, Sites: []*Site{}, Partial: append([]string{}, s.partial...)}
	for _, x := range sites {
		if seen[x.ID] { // a list that changes between pages may repeat entries
			continue
		}
		seen[x.ID] = true
		x.clean()
		plan.Sites = append(plan.Sites, x)
	}
	if len(plan.Sites) >= maxSites {
		plan.Partial = append(plan.Partial, fmt.Sprintf("more than %d sites: name those that are left", maxSites))
	}
	for _, name := range only {
		if !slices.ContainsFunc(plan.Sites, func(x *Site) bool { return x.ID == name || x.Proposal.Name == name }) {
			return Plan{}, fmt.Errorf("%s has no site %s that this token can read", p.Name, name)
		}
	}
	slices.SortFunc(plan.Sites, func(a, b *Site) int { return cmp.Compare(a.Proposal.Name, b.Proposal.Name) })
	return plan, nil
}

const noRepository = "its repository, which the platform does not tell: name it with --repository, or deploy a folder with slipway deploy"

// SetRepository sets a site's repository if the platform doesn't know it. It fails if the platform does, or if the
// address is invalid.
func (x *Site) SetRepository(address string) error {
	if x.Proposal.Repository != "" {
		return fmt.Errorf("the repository of %s is %s", x.Proposal.Name, x.Proposal.Repository)
	}
	r := repository(address)
	if r == "" {
		return fmt.Errorf("%q is no repository such as github.com/acme/site", address)
	}
	x.Proposal.Repository, x.Proposal.Source = r, ""
	x.Left = slices.DeleteFunc(x.Left, func(line string) bool { return line == noRepository })
	x.carry("repository %s", x.Proposal.Repository)
	return nil
}

func (x *Site) carry(format string, args ...any) {
	x.Carried = append(x.Carried, fmt.Sprintf(format, args...))
}

func (x *Site) leave(format string, args ...any) {
	x.Left = append(x.Left, fmt.Sprintf(format, args...))
}

var key = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// clean makes a site valid for the REST interface and writes the messages about it.
func (x *Site) clean() {
	p := &x.Proposal
	p.Name = strings.TrimSpace(p.Name)
	if utf8.RuneCountInString(p.Name) > 100 {
		p.Name = string([]rune(p.Name)[:100])
	}
	p.Name = cmp.Or(p.Name, x.ID)
	p.Type = "static"
	if p.Repository == "" {
		p.Source, p.Branch = "upload", ""
		x.Left = append(x.Left, noRepository)
	} else {
		x.carry("repository %s", strings.TrimSpace(p.Repository+" "+p.Branch))
	}
	var refused []string
	kept := p.Env[:0]
	for _, v := range p.Env {
		ok := key.MatchString(v.Key) && len(v.Key) <= 256 && !strings.HasPrefix(strings.ToUpper(v.Key), "SLIPWAY_") &&
			len(v.Value) <= maxValue && utf8.ValidString(v.Value) && !strings.ContainsRune(v.Value, 0) && len(kept) < maxVars
		if !ok {
			refused = append(refused, v.Key)
			continue
		}
		v.Secret = v.Secret || dotenv.Secret(v.Key, v.Value)
		kept = append(kept, v)
	}
	p.Env = merged(kept)
	slices.SortStableFunc(p.Env, func(a, b Var) int { return strings.Compare(a.Key, b.Key) }) // keep the values of a key together
	if n := len(names(p.Env)); n > 0 {
		x.carry("%s: %s", plural(n, "variable"), listed(names(p.Env)))
	}
	if len(refused) > 0 {
		x.leave("variables with names or values that Slipway does not take: %s", listed(refused))
	}
	var settings []string
	for _, s := range [][2]string{
		{"root directory", p.Build.Root},
		{"install command", p.Build.Install},
		{"build command", p.Build.Command},
		{"output directory", p.Build.Output},
		{"Node.js", p.Build.Node},
		{"start command", p.Run.Command},
	} {
		if s[1] != "" {
			settings = append(settings, s[0]+" "+s[1])
		}
	}
	if len(settings) > 0 {
		x.carry("%s", strings.Join(settings, ", "))
	}
	slices.Sort(x.Domains)
	x.Domains = slices.Compact(x.Domains)
	if len(x.Domains) > 0 {
		x.carry("%s: %s; visitors go on to the old address until you change the DNS records", plural(len(x.Domains), "domain"), listed(x.Domains))
	}
	for _, list := range []*[]string{&x.Carried, &x.Left, &x.Domains} {
		if *list == nil {
			*list = []string{}
		}
	}
}

// merged combines equal values for production and previews into one for both, since the REST interface accepts a key
// once for both or once for each.
func merged(vars []Var) []Var {
	type slot struct{ key, branch string }
	const production, preview = 1, 2
	covers := func(v Var) (n int) {
		if len(v.Target) == 0 {
			return production | preview
		}
		for _, t := range v.Target {
			n |= map[string]int{"production": production, "preview": preview}[t]
		}
		return n
	}
	bySlot := map[slot]map[int]Var{}
	var order []slot
	for _, v := range vars {
		at := slot{v.Key, v.Branch}
		if bySlot[at] == nil {
			bySlot[at] = map[int]Var{}
			order = append(order, at)
		}
		if v.Branch != "" { // for previews only
			v.Target = nil
			bySlot[at][preview] = v
			continue
		}
		for _, one := range []int{production, preview} {
			if covers(v)&one != 0 {
				bySlot[at][one] = v // the last value counts
			}
		}
	}
	out := make([]Var, 0, len(vars))
	for _, at := range order {
		p, hasP := bySlot[at][production]
		q, hasQ := bySlot[at][preview]
		if hasP && hasQ && p.Value == q.Value {
			p.Target, p.Secret = nil, p.Secret || q.Secret
			out = append(out, p)
			continue
		}
		if hasP {
			p.Target = []string{"build", "runtime", "production"}
			out = append(out, p)
		}
		if hasQ && at.branch == "" {
			q.Target = []string{"build", "runtime", "preview"}
		}
		if hasQ {
			out = append(out, q)
		}
	}
	return out
}

func names(vars []Var) []string {
	set := map[string]bool{}
	for _, v := range vars {
		set[v.Key] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// listed joins names for a sentence and shortens long lists.
func listed(all []string) string {
	if len(all) <= maxListed {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxListed], ", "), len(all)-maxListed)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// repository returns host/owner/name of a repository's address, or "" if it is invalid.
func repository(address string) string {
	address = strings.TrimSuffix(strings.TrimSpace(address), ".git")
	if rest, ok := strings.CutPrefix(address, "git@"); ok { // git@host:owner/name
		address = strings.Replace(rest, ":", "/", 1)
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	if _, rest, ok := strings.Cut(address, "@"); ok { // drop credentials
		address = rest
	}
	address = strings.Trim(address, "/")
	if strings.Count(address, "/") < 2 || strings.ContainsAny(address, " ?#") {
		return ""
	}
	return address
}
