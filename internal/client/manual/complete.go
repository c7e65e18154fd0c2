package manual

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Completion holds each shell's completion script. The scripts call slipway, so they are never out of date.
var Completion = map[string]string{
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

// Word is a possible next word with a description.
type Word struct{ Text, About string }

// Next returns the words that can replace the last one, and whether a site's name can too.
func Next(node *kong.Node, words []string) (list []Word, site bool) {
	flags, place := node.Flags, 0
	var value *kong.Value // flag or argument of the last word
	for i := 0; i < len(words)-1; i++ {
		w := words[i]
		if strings.HasPrefix(w, "-") {
			name, _, whole := CutValue(w)
			if f := flagNamed(flags, name); f != nil && !f.IsBool() && !whole {
				i++
				if i == len(words)-1 {
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
	if name, _, whole := CutValue(last); value == nil && whole {
		if f := flagNamed(flags, name); f != nil {
			value = f.Value
		}
	}
	switch {
	case value != nil:
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				list = append(list, Word{"--" + f.Name, f.Help})
			}
		}
		return list, false
	default:
		for _, c := range node.Children {
			if !c.Hidden {
				list = append(list, Word{c.Name, c.Help})
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
			list = append(list, Word{v, ""})
		}
	}
	slices.SortStableFunc(list, func(a, b Word) int { return strings.Compare(a.Text, b.Text) })
	return list, value.Name == "site"
}

// CutValue splits --name=value.
func CutValue(word string) (name, value string, whole bool) {
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
