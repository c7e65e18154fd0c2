package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// completionCommand prints what makes a shell complete slipway's words: it asks slipway itself, so that it never is out of date.
type completionCommand struct {
	Shell string `arg:"" env:"-" help:"bash, zsh or fish." enum:"bash,zsh,fish"`
}

var completions = map[string]string{
	"bash": `# Completion of slipway for bash:  source <(slipway completion bash)
_slipway() {
	local word
	COMPREPLY=()
	while IFS=$'\t' read -r word _; do
		COMPREPLY+=("$word")
	done < <(slipway __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _slipway slipway
`,
	"zsh": `#compdef slipway
# Completion of slipway for zsh:  source <(slipway completion zsh)
_slipway() {
	local -a found
	local line
	for line in "${(@f)$(slipway __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		[[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
	done
	if (( $#found )); then
		_describe slipway found
	else
		_files
	fi
}
if [[ $funcstack[1] = _slipway ]]; then
	_slipway "$@"
else
	compdef _slipway slipway
fi
`,
	"fish": `# Completion of slipway for fish:  slipway completion fish | source
complete -c slipway -f -a '(slipway __complete (commandline -opc)[2..] "$(commandline -ct)" 2>/dev/null)'
`,
}

// Run prints the shell's text.
func (c completionCommand) Run(e *Env) error {
	_, err := fmt.Fprint(e.Out, completions[c.Shell])
	return err
}

// completeCommand prints the words that can come next, each with a tab and what it is, for shells.
type completeCommand struct {
	Words []string `arg:"" optional:"" env:"-" passthrough:"all" help:"The words so far; the last one may be a part of one, or empty."`
}

// Run prints them. What it can't find out is not said: a shell has nowhere to show it.
func (c completeCommand) Run(ctx context.Context, e *Env, k *kong.Context) error {
	words := c.Words
	if len(words) == 0 {
		words = []string{""}
	}
	list, isSite := candidates(k.Model.Node, words)
	if isSite {
		list = append(list, e.siteNames(ctx)...)
	}
	_, last, _ := cutValue(words[len(words)-1])
	for _, w := range list {
		if strings.HasPrefix(w.word, last) {
			fmt.Fprintf(e.Out, "%s\t%s\n", w.word, strings.Join(strings.Fields(w.about), " "))
		}
	}
	return nil
}

// candidate is a word that may come next.
type candidate struct{ word, about string }

// candidates returns the words that may take the place of the last one, and whether a site may, too.
func candidates(node *kong.Node, words []string) (list []candidate, site bool) {
	flags, place := node.Flags, 0
	var value *kong.Value // that the last word is of
	for i := 0; i < len(words)-1; i++ {
		w := words[i]
		if strings.HasPrefix(w, "-") {
			name, _, whole := cutValue(w)
			if f := flagNamed(flags, name); f != nil && !f.IsBool() && !whole {
				if i++; i == len(words)-1 {
					value = f.Value
				}
			}
			continue
		}
		if child := childNamed(node, w); child != nil {
			node, flags, place = child, append(flags[:len(flags):len(flags)], child.Flags...), 0
			continue
		}
		place++
	}
	last := words[len(words)-1]
	if name, _, whole := cutValue(last); value == nil && whole {
		if f := flagNamed(flags, name); f != nil {
			value = f.Value
		}
	}
	switch {
	case value != nil:
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				list = append(list, candidate{"--" + f.Name, f.Help})
			}
		}
		return list, false
	default:
		for _, c := range node.Children {
			if !c.Hidden {
				list = append(list, candidate{c.Name, c.Help})
			}
		}
		if place < len(node.Positional) {
			value = node.Positional[place]
		}
	}
	if value == nil {
		return list, false
	}
	for v := range value.EnumMap() {
		if v != "" {
			list = append(list, candidate{v, ""})
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return list, value.Name == "site"
}

// cutValue splits --name=value.
func cutValue(word string) (name, value string, whole bool) {
	if !strings.HasPrefix(word, "--") {
		return word, word, false
	}
	name, value, whole = strings.Cut(word, "=")
	if !whole {
		value = word
	}
	return name, value, whole
}

func flagNamed(flags []*kong.Flag, word string) *kong.Flag {
	for _, f := range flags {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func childNamed(n *kong.Node, word string) *kong.Node {
	for _, c := range n.Children {
		if c.Name == word {
			return c
		}
	}
	return nil
}

// The names of sites are asked for within this time, and remembered for that one: who types waits.
const (
	namesWithin = 300 * time.Millisecond
	namesFor    = time.Minute
)

// siteNames returns the sites of whoever is signed in, or nothing.
func (e *Env) siteNames(ctx context.Context) (list []candidate) {
	file := ""
	if dir, err := os.UserCacheDir(); err == nil {
		file = filepath.Join(dir, "slipway", "sites.json")
	}
	var known struct {
		Server string
		Sites  []site
	}
	c, err := target{Server: os.Getenv("SLIPWAY_SERVER"), Token: os.Getenv("SLIPWAY_TOKEN"), CAFile: os.Getenv("SLIPWAY_CA_FILE")}.client(e)
	if err != nil {
		return nil
	}
	fresh := false
	if info, err := os.Stat(file); err == nil && time.Since(info.ModTime()) < namesFor {
		b, err := os.ReadFile(file)
		fresh = err == nil && json.Unmarshal(b, &known) == nil && known.Server == c.Server() && os.Getenv("SLIPWAY_TOKEN") == ""
	}
	if !fresh {
		known.Server, known.Sites = c.Server(), nil
		ctx, cancel := context.WithTimeout(ctx, namesWithin)
		defer cancel()
		all, err := c.List(ctx, "/sites")
		if err != nil {
			return nil
		}
		for _, raw := range all {
			var s site
			if json.Unmarshal(raw, &s) == nil {
				known.Sites = append(known.Sites, site{Slug: s.Slug, Name: s.Name})
			}
		}
		if b, err := json.Marshal(known); err == nil && file != "" && os.Getenv("SLIPWAY_TOKEN") == "" &&
			os.MkdirAll(filepath.Dir(file), 0o700) == nil {
			_ = os.WriteFile(file, b, 0o600) // without it the next one asks again
		}
	}
	for _, s := range known.Sites {
		list = append(list, candidate{s.Slug, printable(s.Name)})
	}
	return list
}
