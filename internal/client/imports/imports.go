// Package imports owns what other platforms tell of somebody's sites, and the plan of what Slipway makes of each: it reads with the
// person's own token and changes nothing, neither there nor here.
//
// The token goes to the platform alone. Answers are bounded, and what a token may not read, or what changes while it is read, makes
// a plan partial instead of wrong.
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

// Platform is one that sites can be imported from.
type Platform struct {
	ID    string // in the command line
	Name  string
	Base  string // where its API is
	Token string // the environment variable that its own command line reads
	Help  string // where a token is made
	read  func(ctx context.Context, s *source) ([]*Site, error)
}

// Platforms returns them all.
func Platforms() []Platform {
	return []Platform{
		{
			"netlify", "Netlify", "https://api.netlify.com/api/v1", "NETLIFY_AUTH_TOKEN",
			"User settings, Applications, Personal access tokens", netlify,
		},
		{"vercel", "Vercel", "https://api.vercel.com", "VERCEL_TOKEN", "Account settings, Tokens", vercel},
		{"render", "Render", "https://api.render.com/v1", "RENDER_API_KEY", "Account settings, API keys", render},
		{"heroku", "Heroku", "https://api.heroku.com", "HEROKU_API_KEY", "Account settings, Applications, Authorizations", heroku},
		{
			"cloudflare", "Cloudflare Pages", "https://api.cloudflare.com/client/v4", "CLOUDFLARE_API_TOKEN",
			"dash.cloudflare.com/profile/api-tokens, with the permission Cloudflare Pages: Read", cloudflare,
		},
	}
}

// Plan is what an import would make.
type Plan struct {
	Platform string   `json:"platform"`
	Sites    []*Site  `json:"sites"`
	Partial  []string `json:"partial"` // what could not be read, in words
}

// Site is one of the platform's, and what becomes of it.
type Site struct {
	ID       string   `json:"id"` // at the platform
	Proposal Proposal `json:"proposal"`
	Domains  []string `json:"domains"`
	Carried  []string `json:"carried"`    // in words
	Left     []string `json:"notCarried"` // in words: what stays behind, and what to do about it
	Done     string   `json:"siteId"`     // the site that an earlier import made of it
}

// Proposal is what a site is created with, in the fields of the REST interface.
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

// Build is how it is built. Empty fields are detected.
type Build struct {
	Command string `json:"command,omitempty"`
	Install string `json:"install,omitempty"`
	Output  string `json:"output,omitempty"`
	Root    string `json:"root,omitempty"`
	Node    string `json:"node,omitempty"`
}

// Run is how its program runs.
type Run struct {
	Command     string `json:"command,omitempty"`
	HealthCheck *Check `json:"healthCheck,omitempty"`
}

// Check is a path that answers when the program is healthy.
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

// The bounds of a plan.
const (
	maxSites  = 1000
	maxVars   = 1000
	maxValue  = 32 << 10
	maxListed = 20 // names in a sentence
)

// Read asks a platform for its sites. Only those whose name or id is in only are read whole; none: all. A team's or account's id
// narrows it where the platform has these.
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
		if seen[x.ID] { // a list that changes while its pages are read tells some twice
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

// SetRepository names the repository of a site whose platform does not. It is an error where the platform does, or where the
// address is none.
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

// clean brings a site into what the REST interface takes, and says in words what is carried and what is not.
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
	slices.SortStableFunc(p.Env, func(a, b Var) int { return strings.Compare(a.Key, b.Key) }) // the values of a key stand together
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

// merged joins values of one key that are the same for production and for previews into one for both, as the interface wants them:
// a key once for both, or once for each.
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
		if v.Branch != "" { // previews alone
			v.Target = nil
			bySlot[at][preview] = v
			continue
		}
		for _, one := range []int{production, preview} {
			if covers(v)&one != 0 {
				bySlot[at][one] = v // the last one counts
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

// listed is names in a sentence, the first few of many.
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

// repository returns host/owner/name of a repository's address; empty: it is none.
func repository(address string) string {
	address = strings.TrimSuffix(strings.TrimSpace(address), ".git")
	if rest, ok := strings.CutPrefix(address, "git@"); ok { // git@host:owner/name
		address = strings.Replace(rest, ":", "/", 1)
	}
	if _, rest, ok := strings.Cut(address, "://"); ok {
		address = rest
	}
	if _, rest, ok := strings.Cut(address, "@"); ok { // a credential is not carried
		address = rest
	}
	address = strings.Trim(address, "/")
	if strings.Count(address, "/") < 2 || strings.ContainsAny(address, " ?#") {
		return ""
	}
	return address
}
